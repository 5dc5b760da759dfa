#include "medfusion/metrics/binary_classification.h"

#include <absl/strings/str_cat.h>

#include <cmath>
#include <stdexcept>

#include "medfusion/metrics/inputs.h"

namespace medfusion {

BinaryClassification::BinaryClassification(const BinaryClassificationOptions& options)
    : options_(options), cut_(options.threshold) {
  if (!(options.threshold > 0.0 && options.threshold < 1.0)) {
    throw std::invalid_argument(absl::StrCat("BinaryClassificationOptions::threshold is ",
                                             options.threshold,
                                             "; expected a probability between 0 and 1"));
  }
  if (options.kind == ScoreKind::kLogit) cut_ = std::log(cut_ / (1.0 - cut_));
}

void BinaryClassification::Update(const at::Tensor& scores, const at::Tensor& labels) {
  const absl::StatusOr<std::vector<double>> values = ReadPositiveScores(scores, options_.kind);
  if (!values.ok()) return Refuse(values.status());
  const absl::StatusOr<std::vector<int64_t>> truths = ReadLabels(labels, 2);
  if (!truths.ok()) return Refuse(truths.status());
  const absl::Status lengths = CheckSameLength(values->size(), truths->size());
  if (!lengths.ok()) return Refuse(lengths);
  for (size_t i = 0; i < values->size(); ++i) {
    const bool predicted = (*values)[i] > cut_;
    const bool truth = (*truths)[i] == 1;
    counts_.true_positives += predicted && truth;
    counts_.false_positives += predicted && !truth;
    counts_.true_negatives += !predicted && !truth;
    counts_.false_negatives += !predicted && truth;
  }
}

MetricResult BinaryClassification::Accuracy() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return MetricResult::Ratio(tp + tn, tp + fp + tn + fn, "no samples");
}

MetricResult BinaryClassification::Sensitivity() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return MetricResult::Ratio(tp, tp + fn, "no positive labels");
}

MetricResult BinaryClassification::Specificity() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return MetricResult::Ratio(tn, tn + fp, "no negative labels");
}

MetricResult BinaryClassification::Precision() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return MetricResult::Ratio(tp, tp + fp, "no positive predictions");
}

MetricResult BinaryClassification::F1() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return MetricResult::Ratio(2 * tp, 2 * tp + fp + fn, "no positive labels or predictions");
}

std::string BinaryClassification::Description() const {
  return absl::StrCat("BinaryClassification(",
                      options_.kind == ScoreKind::kLogit ? "logit" : "probability", " > ",
                      options_.threshold, ")");
}

std::vector<std::pair<std::string, MetricResult>> BinaryClassification::Results() const {
  return {{"accuracy", Accuracy()},
          {"sensitivity", Sensitivity()},
          {"specificity", Specificity()},
          {"precision", Precision()},
          {"f1", F1()}};
}

MetricState BinaryClassification::State() const {
  const auto& [tp, fp, tn, fn] = counts_;
  return {{static_cast<int64_t>(options_.kind), tp, fp, tn, fn}, {options_.threshold}};
}

absl::Status BinaryClassification::Merge(const MetricState& state) {
  if (state.integers.size() != 5 || state.reals.size() != 1 ||
      state.integers[0] != static_cast<int64_t>(options_.kind) ||
      state.reals[0] != options_.threshold) {
    return NotMyState();
  }
  counts_.true_positives += state.integers[1];
  counts_.false_positives += state.integers[2];
  counts_.true_negatives += state.integers[3];
  counts_.false_negatives += state.integers[4];
  return absl::OkStatus();
}

}  // namespace medfusion
