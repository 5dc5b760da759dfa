// What every metric is: a state that adds up over ranks, and results that may be undefined.
#ifndef MEDFUSION_METRICS_METRIC_H_
#define MEDFUSION_METRICS_METRIC_H_

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace medfusion {

// A number, or the reason why there is none: the sensitivity without a positive sample is neither 0
// nor an error, and a NaN in its place would stop a run that has nothing wrong with it.
class MetricResult {
 public:
  static MetricResult Of(double value) { return MetricResult(value, ""); }
  static MetricResult Undefined(std::string reason) {
    return MetricResult(std::nullopt, std::move(reason));
  }
  // numerator / denominator, undefined for the `reason` when the denominator is 0.
  static MetricResult Ratio(int64_t numerator, int64_t denominator, std::string reason);
  // The mean of `parts`; undefined, for the first such part's reason, when one of them is.
  static MetricResult Mean(const std::vector<MetricResult>& parts);

  bool defined() const { return value_.has_value(); }
  // Throws std::bad_optional_access when undefined.
  double value() const { return value_.value(); }
  double value_or(double other) const { return value_.value_or(other); }
  const std::optional<double>& optional() const { return value_; }
  // Empty when defined.
  const std::string& reason() const { return reason_; }
  // "0.9931" or "undefined (no positive samples)", for people; value() has all digits.
  std::string ToString() const;

  friend bool operator==(const MetricResult&, const MetricResult&) = default;

 private:
  MetricResult(std::optional<double> value, std::string reason)
      : value_(value), reason_(std::move(reason)) {}

  std::optional<double> value_;
  std::string reason_;
};

// What a metric knows, as plain numbers that a checkpoint can hold as two vectors or tensors. Their
// meaning is the metric's own; the first integers repeat its options, which Merge checks.
struct MetricState {
  std::vector<int64_t> integers;
  std::vector<double> reals;

  friend bool operator==(const MetricState&, const MetricState&) = default;
};

// The samples that this rank has seen, reduced to what the result needs. A metric never holds
// another rank's samples: results over all ranks are computed from a merged copy (MergeRanks and
// MetricSet in metric_set.h), so that update, compute, update, compute is right each time.
//
// Note [Refused updates]
// An update that cannot be taken (a wrong shape, a NaN score, a label that is no class) changes
// nothing and is remembered. status() has it at once, and the next merge over the ranks returns it
// on every rank: a rank that stopped alone, in the middle of an epoch, would leave the others
// waiting.
//
// Copyable. Not thread safe. Only what says so is collective.
class Metric {
 public:
  virtual ~Metric() = default;

  // The kind and its options, equal on all ranks: "ConfusionMatrix(num_classes=3)".
  virtual std::string Description() const = 0;
  // Results of what this object holds: names and values, in a fixed order. A metric with one number
  // may leave its name empty. On a rank's own metric these are that rank's results alone.
  virtual std::vector<std::pair<std::string, MetricResult>> Results() const = 0;
  virtual std::unique_ptr<Metric> Clone() const = 0;

  virtual MetricState State() const = 0;
  // Adds the samples behind `state`, another rank's or a checkpoint's. To restore: Reset(), then
  // Merge each saved state on one rank; their number may differ from the number of ranks.
  // InvalidArgument, and nothing changes, unless a metric with the same options made it.
  virtual absl::Status Merge(const MetricState& state) = 0;

  // Forgets all samples and the status.
  void Reset();
  // Of the first update that was refused, else OK. See Note [Refused updates].
  absl::Status status() const;

 protected:
  Metric() = default;
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;

  virtual void Clear() = 0;
  // Remembers why an update was refused.
  void Refuse(const absl::Status& reason);
  // What Merge returns for a state that is not this metric's.
  absl::Status NotMyState() const;

 private:
  absl::Status status_;
  int64_t refused_ = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_METRIC_H_
