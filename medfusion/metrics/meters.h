// Running means, sums and rates of numbers that training makes: losses, norms, sample counts.
#ifndef MEDFUSION_METRICS_METERS_H_
#define MEDFUSION_METRICS_METERS_H_

#include <ATen/core/Tensor.h>

#include "medfusion/metrics/exact_sum.h"
#include "medfusion/metrics/metric.h"

namespace medfusion {

// The weighted mean of numbers: sum(weight * value) / sum(weight), without rounding on the way. The
// same values and weights give the same bits whatever rank and order they came in. NaN values
// propagate. State: a few doubles, whatever the number of updates.
class MeanMeter : public Metric {
 public:
  // A mean loss of a batch: `weight` is its number of samples. A weight of 0 is ignored with its
  // value, also NaN; a negative, infinite or NaN weight is refused.
  void Update(double value, double weight = 1.0);
  // Each element of any shape and device counts once.
  void Update(const at::Tensor& values);

  // Undefined before the first update.
  MetricResult Mean() const;
  double TotalWeight() const { return weights_.Round(); }

  std::string Description() const override { return "MeanMeter"; }
  std::vector<std::pair<std::string, MetricResult>> Results() const override {
    return {{"", Mean()}};
  }
  std::unique_ptr<Metric> Clone() const override { return std::make_unique<MeanMeter>(*this); }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  void Clear() override { *this = MeanMeter(); }

  ExactSum values_;
  ExactSum weights_;
};

// The sum of numbers, rounded once. Integers count with all 64 bits. State: a few doubles.
class SumMeter : public Metric {
 public:
  void Update(double value) { sum_.Add(value); }
  void Update(int64_t value) { sum_.AddInteger(value); }
  void Update(int value) { sum_.AddInteger(value); }

  double Sum() const { return sum_.Round(); }

  std::string Description() const override { return "SumMeter"; }
  std::vector<std::pair<std::string, MetricResult>> Results() const override {
    return {{"", MetricResult::Of(Sum())}};
  }
  std::unique_ptr<Metric> Clone() const override { return std::make_unique<SumMeter>(*this); }
  MetricState State() const override { return {{}, sum_.Terms()}; }
  absl::Status Merge(const MetricState& state) override;

 private:
  void Clear() override { *this = SumMeter(); }

  ExactSum sum_;
};

// Samples per second of all ranks together: their samples over the time of the slowest rank. State:
// two numbers.
class ThroughputMeter : public Metric {
 public:
  // Refused when negative, infinite or NaN.
  void Update(int64_t samples, double seconds);

  int64_t Samples() const { return samples_; }
  // Undefined while no time has passed.
  MetricResult SamplesPerSecond() const;

  std::string Description() const override { return "ThroughputMeter"; }
  std::vector<std::pair<std::string, MetricResult>> Results() const override {
    return {{"", SamplesPerSecond()}};
  }
  std::unique_ptr<Metric> Clone() const override {
    return std::make_unique<ThroughputMeter>(*this);
  }
  MetricState State() const override { return {{samples_}, {seconds_}}; }
  absl::Status Merge(const MetricState& state) override;

 private:
  void Clear() override { *this = ThroughputMeter(); }

  int64_t samples_ = 0;
  double seconds_ = 0.0;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_METERS_H_
