// Which parameters are paged together: a model's module tree becomes a list of units. Pure logic;
// neither tensors nor ranks.
#ifndef MEDFUSION_FSDP_UNIT_POLICY_H_
#define MEDFUSION_FSDP_UNIT_POLICY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace medfusion {

// A module as the policy sees it.
struct ModuleNode {
  std::string path;  // "encoder.layers.0"; empty for the root
  std::string type;  // the class's name
  // Holds other modules and nothing else (Sequential, ModuleList, ModuleDict): never a unit itself.
  bool container = false;
  // Indices of the parameters that this module itself registers. One that several modules share
  // (tied weights) belongs to the first, in the order of the tree.
  std::vector<int> parameters;
  std::vector<ModuleNode> children;
};

// A module that may become a unit, for UnitPolicy::predicate.
struct UnitCandidate {
  std::string path;
  std::string type;
  int64_t numel = 0;  // of its parameters, without those in units further down
};

struct UnitPolicy {
  // A module becomes a unit when it holds at least so many elements that no unit further down has
  // taken. 0 makes a unit of every module that has parameters of its own.
  int64_t min_num_params = 1'000'000;
  // Decides instead of min_num_params. Must say the same on all ranks.
  std::function<bool(const UnitCandidate&)> predicate;
  // Paths of modules, containers included; decides instead of both when not empty.
  std::vector<std::string> unit_names;
};

struct PlannedUnit {
  std::string name;             // the module's path; "(root)" for the root
  std::vector<int> parameters;  // ascending
};

// Deals all parameters below `root` into units, children before their parents; what is left over is
// the root's. Units are ordered by their first parameter; none is empty. `numels[i]` is the size of
// parameter i. Throws std::invalid_argument when unit_names has a path that is not in the tree (the
// text lists those that are) or has no parameters left, or when min_num_params is negative.
// PyTorch: size_based_auto_wrap_policy, lambda_auto_wrap_policy.
std::vector<PlannedUnit> PlanUnits(const ModuleNode& root, std::span<const int64_t> numels,
                                   const UnitPolicy& policy);

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_UNIT_POLICY_H_
