// Merging the ranks' metrics without a group: what travels, and what comes of it.
#ifndef MEDFUSION_METRICS_METRIC_MERGE_H_
#define MEDFUSION_METRICS_METRIC_MERGE_H_

#include <absl/status/status.h>

#include <span>
#include <string>
#include <vector>

#include "medfusion/metrics/metric.h"

namespace medfusion {

// A rank's metrics, their states and refused updates, as one message.
std::string EncodeMetrics(std::span<const Metric* const> locals);

// Merges every rank's message into `merged`, empty metrics of the same kinds as those encoded, in
// rank order. The same error on all ranks, naming ranks and metrics, when the ranks' metrics differ
// in kind, options or number (InvalidArgument) or an update was refused on any rank (that update's
// code).
absl::Status MergeEncodedMetrics(const std::vector<std::string>& messages,
                                 std::span<Metric* const> merged);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_METRIC_MERGE_H_
