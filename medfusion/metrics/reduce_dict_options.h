// How ReduceDict combines the ranks' values.
#ifndef MEDFUSION_METRICS_REDUCE_DICT_OPTIONS_H_
#define MEDFUSION_METRICS_REDUCE_DICT_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>

namespace medfusion {

enum class MetricReduction : uint8_t {
  // sum(weight * value) / sum(weight) over the ranks; with the default weights, the plain average.
  kMean,
  kSum,
  kMin,
  kMax,
};

struct ReduceDictOptions {
  MetricReduction reduction = MetricReduction::kMean;
  // For single keys, instead of `reduction`.
  std::map<std::string, MetricReduction> reductions;
  // Of this rank in means: the number of samples behind its values. The values of a rank of weight
  // 0 are ignored in means, NaN too (an average over no samples often is). Not used in sums, minima
  // and maxima.
  double weight = 1.0;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_REDUCE_DICT_OPTIONS_H_
