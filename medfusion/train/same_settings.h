// Ranks that were started differently must not train together.
#ifndef MEDFUSION_TRAIN_SAME_SETTINGS_H_
#define MEDFUSION_TRAIN_SAME_SETTINGS_H_

#include <absl/status/status.h>

#include <string>
#include <utility>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Collective. The same InvalidArgument on all ranks when a setting differs from rank 0's, naming
// the setting, the ranks and their values: two shells with different flags, or different data.
absl::Status RequireSameSettings(ProcessGroup& group,
                                 const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_SAME_SETTINGS_H_
