#include "medfusion/metrics/meters.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "medfusion/metrics/inputs.h"

namespace medfusion {

void MeanMeter::Update(double value, double weight) {
  if (!std::isfinite(weight) || weight < 0.0) {
    Refuse(absl::InvalidArgumentError(
        absl::StrCat("weight is ", weight, "; expected a finite number of at least 0")));
    return;
  }
  if (weight == 0.0) return;
  values_.AddProduct(value, weight);
  weights_.Add(weight);
}

void MeanMeter::Update(const at::Tensor& values) {
  const absl::StatusOr<std::vector<double>> numbers = ReadNumbers(values);
  if (!numbers.ok()) {
    Refuse(numbers.status());
    return;
  }
  for (const double value : *numbers) Update(value);
}

MetricResult MeanMeter::Mean() const {
  if (weights_.Round() == 0.0) return MetricResult::Undefined("no values");
  return MetricResult::Of(Quotient(values_, weights_));
}

MetricState MeanMeter::State() const {
  const std::vector<double> values = values_.Terms();
  MetricState state{{static_cast<int64_t>(values.size())}, values};
  for (const double term : weights_.Terms()) state.reals.push_back(term);
  return state;
}

absl::Status MeanMeter::Merge(const MetricState& state) {
  const auto total = static_cast<int64_t>(state.reals.size());
  if (state.integers.size() != 1 || state.integers[0] < 0 || state.integers[0] > total) {
    return NotMyState();
  }
  const std::span<const double> terms(state.reals);
  const auto values = static_cast<size_t>(state.integers[0]);
  for (const double term : terms.first(values)) values_.Add(term);
  for (const double term : terms.subspan(values)) weights_.Add(term);
  return absl::OkStatus();
}

absl::Status SumMeter::Merge(const MetricState& state) {
  if (!state.integers.empty()) return NotMyState();
  for (const double term : state.reals) sum_.Add(term);
  return absl::OkStatus();
}

void ThroughputMeter::Update(int64_t samples, double seconds) {
  if (samples < 0 || !std::isfinite(seconds) || seconds < 0.0) {
    Refuse(absl::InvalidArgumentError(
        absl::StrCat(samples, " samples in ", seconds, " s; expected two numbers of at least 0")));
    return;
  }
  samples_ += samples;
  seconds_ += seconds;
}

MetricResult ThroughputMeter::SamplesPerSecond() const {
  if (seconds_ == 0.0) return MetricResult::Undefined("no time has passed");
  return MetricResult::Of(static_cast<double>(samples_) / seconds_);
}

absl::Status ThroughputMeter::Merge(const MetricState& state) {
  if (state.integers.size() != 1 || state.reals.size() != 1) return NotMyState();
  samples_ += state.integers[0];
  seconds_ = std::max(seconds_, state.reals[0]);
  return absl::OkStatus();
}

}  // namespace medfusion
