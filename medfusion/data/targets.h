// The column of classes, as numbers.
#ifndef MEDFUSION_DATA_TARGETS_H_
#define MEDFUSION_DATA_TARGETS_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "medfusion/data/table.h"

namespace medfusion {

struct Targets {
  std::vector<int64_t> labels;           // one a row, 0 .. C-1
  std::vector<std::string> class_names;  // C
};

// See TabularOptions::target for the three ways to say what the classes are, and
// TabularDataset::Create for the errors.
absl::StatusOr<Targets> ReadTargets(const Table& table, const std::string& target,
                                    const std::string& positive_class,
                                    const std::vector<std::string>& class_names);

}  // namespace medfusion

#endif  // MEDFUSION_DATA_TARGETS_H_
