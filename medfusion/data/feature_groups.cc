#include "medfusion/data/feature_groups.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <algorithm>

namespace medfusion {
namespace {

bool Matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty() || pattern.back() != '*') return name == pattern;
  pattern.remove_suffix(1);
  return name.substr(0, pattern.size()) == pattern;
}

absl::Status CheckNames(std::span<const FeatureGroupSpec> specs) {
  if (specs.empty()) return absl::InvalidArgumentError("feature groups: none is given");
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature groups: group ", i + 1, " has no name"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (specs[i].name != specs[j].name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("feature groups: two groups are named '", specs[i].name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FeatureGroupSpec>> ParseFeatureGroups(std::string_view text) {
  std::vector<FeatureGroupSpec> specs;
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ';');
  for (const std::string& part : parts) {
    const std::vector<std::string> halves = absl::StrSplit(part, ':');
    if (halves.size() == 2) specs.push_back({halves[0], absl::StrSplit(halves[1], ',')});
    if (halves.size() == 2 && !halves[0].empty() && !halves[1].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("feature groups: '", part, "' in '", std::string(text),
                     "' is no group; expected name:column,prefix_*;name:..."));
  }
  return specs;
}

absl::StatusOr<std::vector<FeatureGroup>> SelectFeatureGroups(
    std::span<const std::string> feature_names, std::span<const FeatureGroupSpec> specs) {
  const absl::Status names = CheckNames(specs);
  if (!names.ok()) return names;
  std::vector<FeatureGroup> groups;
  std::vector<std::string> owner(feature_names.size());
  for (const FeatureGroupSpec& spec : specs) {
    groups.push_back({spec.name, {}});
    for (const std::string& pattern : spec.patterns) {
      bool found = false;
      for (size_t i = 0; i < feature_names.size(); ++i) {
        if (!Matches(feature_names[i], pattern)) continue;
        found = true;
        if (!owner[i].empty()) {
          return absl::InvalidArgumentError(
              absl::StrCat("feature groups: '", feature_names[i], "' matches twice, in '", owner[i],
                           "' and in '", spec.name, "' (by '", pattern, "')"));
        }
        owner[i] = spec.name;
        groups.back().columns.push_back(static_cast<int64_t>(i));
      }
      if (found) continue;
      return absl::InvalidArgumentError(absl::StrCat("feature groups: '", pattern, "' of group '",
                                                     spec.name, "' matches none of ",
                                                     absl::StrJoin(feature_names, ", ")));
    }
    if (groups.back().columns.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature groups: '", spec.name, "' has no patterns"));
    }
    std::sort(groups.back().columns.begin(), groups.back().columns.end());
  }
  std::vector<std::string> left;
  for (size_t i = 0; i < owner.size(); ++i) {
    if (owner[i].empty()) left.push_back(feature_names[i]);
  }
  if (left.empty()) return groups;
  return absl::InvalidArgumentError(
      absl::StrCat("feature groups: no group takes ", absl::StrJoin(left, ", "),
                   "; add them to a group or leave them out of the data set's features"));
}

std::vector<std::vector<int64_t>> GroupColumns(std::span<const FeatureGroup> groups) {
  std::vector<std::vector<int64_t>> columns;
  for (const FeatureGroup& group : groups) columns.push_back(group.columns);
  return columns;
}

}  // namespace medfusion
