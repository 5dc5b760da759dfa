// Named values, averaged over ranks in one exchange.
//
//   MetricMap metrics = {{"loss", torch::tensor(0.5)}, {"acc", torch::tensor(0.9)}};
//   MetricMap average = ReduceDict(metrics).value();
#ifndef MEDFUSION_METRICS_REDUCE_DICT_H_
#define MEDFUSION_METRICS_REDUCE_DICT_H_

#include <absl/status/statusor.h>

#include "medfusion/metrics/metric_value.h"
#include "medfusion/metrics/reduce_dict_options.h"

namespace medfusion {

class ProcessGroup;

// Collective. Every rank gets the same values, to the last bit. One all-gather moves all values
// where a rank's dictionary takes up to 2 kB (about 50 numbers), two do where it takes more. Meant
// for numbers and small tensors: every rank receives every rank's; use ProcessGroup::AllReduce for
// gradients.
//
// Numbers: doubles and int64. Means are doubles, also of integers; sums, minima and maxima keep the
// type, and integer sums are exact in 64 bits. Tensors: any shape, the same on all ranks; reduced
// elementwise. A floating dtype is kept, and summed without rounding before it is rounded once;
// means of integer dtypes are float64, their sums int64, their minima and maxima keep the dtype.
// Results lie on the device of this rank's tensor and need no grad. NaN propagates.
//
// Keys may be given in any order; no keys at all are fine when no rank has any. The same error on
// every rank:
//   InvalidArgument     ranks differ in keys, types, shapes or reductions, each of which is named
//                       with its ranks; a weight is negative, infinite or NaN; an option names a
//                       key that is not there; a tensor is undefined, complex or sparse
//   FailedPrecondition  every rank's weight is 0 and a mean is asked for
//   OutOfRange          a sum of integers passes 64 bits
//   Internal            the network failed
//
// Over the default group when none is given; alone (no group) the values are reduced over one rank.
absl::StatusOr<MetricMap> ReduceDict(const MetricMap& metrics,
                                     const ReduceDictOptions& options = {});
absl::StatusOr<MetricMap> ReduceDict(ProcessGroup& group, const MetricMap& metrics,
                                     const ReduceDictOptions& options = {});

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_REDUCE_DICT_H_
