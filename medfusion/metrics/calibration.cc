#include "medfusion/metrics/calibration.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "medfusion/metrics/inputs.h"

namespace medfusion {

Calibration::Calibration(const CalibrationOptions& options) : options_(options) {
  if (options.num_bins < 1) {
    throw std::invalid_argument(absl::StrCat("CalibrationOptions::num_bins is ", options.num_bins,
                                             "; expected at least 1"));
  }
  Clear();
}

void Calibration::Update(const at::Tensor& probabilities, const at::Tensor& labels) {
  const absl::StatusOr<std::vector<double>> values =
      ReadPositiveScores(probabilities, ScoreKind::kProbability);
  if (!values.ok()) return Refuse(values.status());
  const absl::StatusOr<std::vector<int64_t>> truths = ReadLabels(labels, 2);
  if (!truths.ok()) return Refuse(truths.status());
  const absl::Status lengths = CheckSameLength(values->size(), truths->size());
  if (!lengths.ok()) return Refuse(lengths);
  for (size_t i = 0; i < values->size(); ++i) {
    const double value = (*values)[i];
    const auto place = static_cast<int64_t>(value * static_cast<double>(options_.num_bins));
    Bin& bin = bins_[static_cast<size_t>(std::clamp<int64_t>(place, 0, options_.num_bins - 1))];
    bin.samples += 1;
    bin.positives += (*truths)[i];
    bin.probability.Add(value);
    const double distance = value - static_cast<double>((*truths)[i]);
    squares_.AddProduct(distance, distance);
  }
}

ExactSum Calibration::Samples() const {
  ExactSum samples;
  for (const Bin& bin : bins_) samples.AddInteger(bin.samples);
  return samples;
}

MetricResult Calibration::BrierScore() const {
  const ExactSum samples = Samples();
  if (samples.Round() == 0.0) return MetricResult::Undefined("no samples");
  return MetricResult::Of(Quotient(squares_, samples));
}

MetricResult Calibration::ExpectedCalibrationError() const {
  const ExactSum samples = Samples();
  if (samples.Round() == 0.0) return MetricResult::Undefined("no samples");
  // samples_in_bin * |mean probability - share of positives| is the distance of two sums.
  ExactSum distances;
  for (const Bin& bin : bins_) {
    ExactSum distance = bin.probability;
    distance.AddInteger(-bin.positives);
    distances.Add(std::abs(distance.Round()));
  }
  return MetricResult::Of(Quotient(distances, samples));
}

std::string Calibration::Description() const {
  return absl::StrCat("Calibration(num_bins=", options_.num_bins, ")");
}

MetricState Calibration::State() const {
  MetricState state{{options_.num_bins}, {}};
  for (const Bin& bin : bins_) {
    const std::vector<double> terms = bin.probability.Terms();
    state.integers.push_back(bin.samples);
    state.integers.push_back(bin.positives);
    state.integers.push_back(static_cast<int64_t>(terms.size()));
    state.reals.insert(state.reals.end(), terms.begin(), terms.end());
  }
  const std::vector<double> squares = squares_.Terms();
  state.reals.insert(state.reals.end(), squares.begin(), squares.end());
  return state;
}

absl::Status Calibration::Merge(const MetricState& state) {
  const std::vector<int64_t>& integers = state.integers;
  if (integers.size() != 1 + 3 * bins_.size() || integers[0] != options_.num_bins) {
    return NotMyState();
  }
  std::vector<Bin> merged = bins_;
  std::span<const double> terms(state.reals);
  for (size_t i = 0; i < merged.size(); ++i) {
    const int64_t size = integers[3 + 3 * i];
    if (size < 0 || static_cast<size_t>(size) > terms.size()) return NotMyState();
    merged[i].samples += integers[1 + 3 * i];
    merged[i].positives += integers[2 + 3 * i];
    for (const double term : terms.first(static_cast<size_t>(size)))
      merged[i].probability.Add(term);
    terms = terms.subspan(static_cast<size_t>(size));
  }
  bins_ = std::move(merged);
  for (const double term : terms) squares_.Add(term);
  return absl::OkStatus();
}

void Calibration::Clear() {
  bins_.assign(static_cast<size_t>(options_.num_bins), Bin());
  squares_ = ExactSum();
}

}  // namespace medfusion
