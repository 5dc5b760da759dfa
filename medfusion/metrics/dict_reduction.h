// ReduceDict without a group.
#ifndef MEDFUSION_METRICS_DICT_REDUCTION_H_
#define MEDFUSION_METRICS_DICT_REDUCTION_H_

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "medfusion/metrics/metric_value.h"

namespace medfusion {

// The reduction of all ranks' messages (EncodeDict), in rank order, with errors as of ReduceDict.
// `own` is this rank's dictionary, for the devices of its tensors.
absl::StatusOr<MetricMap> ReduceEncodedDicts(const std::vector<std::string>& messages,
                                             const MetricMap& own);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_DICT_REDUCTION_H_
