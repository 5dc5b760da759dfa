#include "medfusion/fsdp/unit_policy.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace medfusion {
namespace {

std::string UnitName(const ModuleNode& node) { return node.path.empty() ? "(root)" : node.path; }

class Planner {
 public:
  Planner(std::span<const int64_t> numels, const UnitPolicy& policy)
      : numels_(numels), policy_(policy) {}

  std::vector<PlannedUnit> Plan(const ModuleNode& root) {
    std::vector<int> rest = Visit(root);
    if (!rest.empty()) AddUnit(root, std::move(rest));
    std::sort(units_.begin(), units_.end(), [](const PlannedUnit& a, const PlannedUnit& b) {
      return a.parameters.front() < b.parameters.front();
    });
    return std::move(units_);
  }

 private:
  // Returns the parameters below `node` that are in no unit.
  std::vector<int> Visit(const ModuleNode& node) {
    std::vector<int> rest = node.parameters;
    for (const ModuleNode& child : node.children) {
      const std::vector<int> left = Visit(child);
      rest.insert(rest.end(), left.begin(), left.end());
    }
    if (node.path.empty() || rest.empty() || !IsUnit(node, rest)) return rest;
    AddUnit(node, std::move(rest));
    return {};
  }

  bool IsUnit(const ModuleNode& node, const std::vector<int>& rest) const {
    if (!policy_.unit_names.empty()) {
      return std::find(policy_.unit_names.begin(), policy_.unit_names.end(), node.path) !=
             policy_.unit_names.end();
    }
    if (node.container) return false;
    UnitCandidate candidate{node.path, node.type, 0};
    for (int parameter : rest) candidate.numel += numels_[parameter];
    return policy_.predicate ? policy_.predicate(candidate)
                             : candidate.numel >= policy_.min_num_params;
  }

  void AddUnit(const ModuleNode& node, std::vector<int> parameters) {
    std::sort(parameters.begin(), parameters.end());
    units_.push_back({UnitName(node), std::move(parameters)});
  }

  const std::span<const int64_t> numels_;
  const UnitPolicy& policy_;
  std::vector<PlannedUnit> units_;
};

void CollectPaths(const ModuleNode& node, std::vector<std::string>& paths) {
  if (!node.path.empty()) paths.push_back(node.path);
  for (const ModuleNode& child : node.children) CollectPaths(child, paths);
}

}  // namespace

std::vector<PlannedUnit> PlanUnits(const ModuleNode& root, std::span<const int64_t> numels,
                                   const UnitPolicy& policy) {
  if (policy.min_num_params < 0) {
    throw std::invalid_argument(
        absl::StrCat("min_num_params is ", policy.min_num_params, "; expected 0 or more elements"));
  }
  std::vector<std::string> paths;
  CollectPaths(root, paths);
  for (const std::string& name : policy.unit_names) {
    if (std::find(paths.begin(), paths.end(), name) == paths.end()) {
      throw std::invalid_argument(absl::StrCat("unit_names: the model has no module '", name,
                                               "'; it has ", absl::StrJoin(paths, ", ")));
    }
  }
  std::vector<PlannedUnit> units = Planner(numels, policy).Plan(root);
  for (const std::string& name : policy.unit_names) {
    if (std::none_of(units.begin(), units.end(),
                     [&](const PlannedUnit& unit) { return unit.name == name; })) {
      throw std::invalid_argument(absl::StrCat(
          "unit_names: module '", name, "' has no parameters, or they all belong to other units"));
    }
  }
  return units;
}

}  // namespace medfusion
