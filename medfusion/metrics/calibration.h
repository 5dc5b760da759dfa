// How far probabilities can be believed: Brier score and expected calibration error.
#ifndef MEDFUSION_METRICS_CALIBRATION_H_
#define MEDFUSION_METRICS_CALIBRATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "medfusion/metrics/exact_sum.h"
#include "medfusion/metrics/metric.h"

namespace medfusion {

struct CalibrationOptions {
  // Of equal width over 0..1, for the calibration error.
  int64_t num_bins = 15;
};

// For probabilities of the positive class. State: two counts and a few doubles per bin.
class Calibration : public Metric {
 public:
  // Throws std::invalid_argument for fewer than one bin.
  explicit Calibration(const CalibrationOptions& options = {});

  // `probabilities` [N], [N, 1] or [N, 2], `labels` [N] or [N, 1] of 0 and 1; N may be 0. Refused
  // as by BinaryClassification::Update.
  void Update(const at::Tensor& probabilities, const at::Tensor& labels);

  // The mean of (probability - label)^2 (Brier, 1950). Undefined without samples.
  MetricResult BrierScore() const;
  // The mean over samples of the distance, in its bin, between the mean probability and the share
  // of positive labels (Guo et al., "On Calibration of Modern Neural Networks", 2017, of the
  // positive class). Undefined without samples.
  MetricResult ExpectedCalibrationError() const;

  std::string Description() const override;
  // "brier", "ece".
  std::vector<std::pair<std::string, MetricResult>> Results() const override {
    return {{"brier", BrierScore()}, {"ece", ExpectedCalibrationError()}};
  }
  std::unique_ptr<Metric> Clone() const override { return std::make_unique<Calibration>(*this); }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  struct Bin {
    int64_t samples = 0;
    int64_t positives = 0;
    ExactSum probability;
  };

  void Clear() override;
  ExactSum Samples() const;

  CalibrationOptions options_;
  std::vector<Bin> bins_;
  ExactSum squares_;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_CALIBRATION_H_
