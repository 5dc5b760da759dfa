// Columns that belong together, such as one laboratory panel or one kind of measurement: what the
// encoders of a fusion model each see.
#ifndef MEDFUSION_DATA_FEATURE_GROUPS_H_
#define MEDFUSION_DATA_FEATURE_GROUPS_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace medfusion {

// Which columns a group takes: exact names, and prefixes that end in '*' ("mean_*").
struct FeatureGroupSpec {
  std::string name;
  std::vector<std::string> patterns;
};

// A group with the positions of its columns among the features, ascending, at least one.
struct FeatureGroup {
  std::string name;
  std::vector<int64_t> columns;
};

// Reads "mean:mean_*;labs:age,bmi,crp_*", the form of a command line flag. InvalidArgument on
// anything else.
absl::StatusOr<std::vector<FeatureGroupSpec>> ParseFeatureGroups(std::string_view text);

// Finds each group's columns. InvalidArgument, with the names: a pattern that matches no feature, a
// feature in two groups or in none, a group name that is empty or occurs twice, no groups. Use the
// patterns {"*"} for a single group of everything.
absl::StatusOr<std::vector<FeatureGroup>> SelectFeatureGroups(
    std::span<const std::string> feature_names, std::span<const FeatureGroupSpec> specs);

// The columns of the groups alone, in order, as models take them.
std::vector<std::vector<int64_t>> GroupColumns(std::span<const FeatureGroup> groups);

}  // namespace medfusion

#endif  // MEDFUSION_DATA_FEATURE_GROUPS_H_
