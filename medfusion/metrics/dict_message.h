// What one rank's dictionary looks like to the others.
#ifndef MEDFUSION_METRICS_DICT_MESSAGE_H_
#define MEDFUSION_METRICS_DICT_MESSAGE_H_

#include <absl/status/statusor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "medfusion/metrics/metric_value.h"
#include "medfusion/metrics/reduce_dict_options.h"

namespace medfusion {

enum class ValueKind : uint8_t { kDouble, kInt64, kTensor };

// One key on one rank. Its values are in `reals` or in `integers`, by dtype.
struct DictEntry {
  MetricReduction reduction = MetricReduction::kMean;
  ValueKind kind = ValueKind::kDouble;
  at::ScalarType dtype = at::kDouble;
  std::vector<int64_t> sizes;
  std::vector<double> reals;
  std::vector<int64_t> integers;

  bool is_integer() const { return at::isIntegralType(dtype, /*includeBool=*/true); }
  size_t numel() const { return is_integer() ? integers.size() : reals.size(); }
};

// All keys of one rank; none when `error` says why.
struct RankDict {
  std::string error;
  double weight = 1.0;
  std::map<std::string, DictEntry> entries;
};

// What must agree over the ranks: "mean of double", "sum of Float[2, 3]".
std::string Signature(const DictEntry& entry);

// A rank's dictionary as a message. What is wrong with it travels in the message, so that every
// rank hears of it.
std::string EncodeDict(const MetricMap& metrics, const ReduceDictOptions& options);

// Internal when `message` is not one of EncodeDict's.
absl::StatusOr<RankDict> DecodeDict(const std::string& message);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_DICT_MESSAGE_H_
