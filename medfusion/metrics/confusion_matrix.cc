#include "medfusion/metrics/confusion_matrix.h"

#include <ATen/ops/tensor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "medfusion/metrics/inputs.h"

namespace medfusion {

ConfusionMatrix::ConfusionMatrix(const ConfusionMatrixOptions& options) : options_(options) {
  if (options.num_classes < 2) {
    throw std::invalid_argument(absl::StrCat("ConfusionMatrixOptions::num_classes is ",
                                             options.num_classes, "; expected at least 2"));
  }
  Clear();
}

void ConfusionMatrix::Update(const at::Tensor& predictions, const at::Tensor& labels) {
  const absl::StatusOr<at::Tensor> pairs =
      CountClassPairs(predictions, labels, options_.num_classes, options_.ignore_label);
  if (!pairs.ok()) return Refuse(pairs.status());
  const at::Tensor pooled = pairs->sum(0).contiguous();
  const int64_t* added = pooled.const_data_ptr<int64_t>();
  std::transform(counts_.begin(), counts_.end(), added, counts_.begin(), std::plus<>());
}

int64_t ConfusionMatrix::Count(int64_t label, int64_t prediction) const {
  const int64_t size = options_.num_classes;
  if (label < 0 || label >= size || prediction < 0 || prediction >= size) {
    throw std::out_of_range(absl::StrCat("ConfusionMatrix: class pair (", label, ", ", prediction,
                                         ") is out of range; expected 0..", size - 1));
  }
  return counts_[static_cast<size_t>(label * size + prediction)];
}

at::Tensor ConfusionMatrix::Matrix() const {
  return at::tensor(at::ArrayRef<int64_t>(counts_), at::kLong)
      .reshape({options_.num_classes, options_.num_classes});
}

ConfusionMatrix::OneVersusRest ConfusionMatrix::Of(int64_t class_number) const {
  OneVersusRest counts;
  counts.true_positives = Count(class_number, class_number);
  for (int64_t other = 0; other < options_.num_classes; ++other) {
    if (other == class_number) continue;
    counts.false_positives += Count(other, class_number);
    counts.false_negatives += Count(class_number, other);
  }
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  counts.true_negatives =
      all - counts.true_positives - counts.false_positives - counts.false_negatives;
  return counts;
}

MetricResult ConfusionMatrix::Accuracy() const {
  int64_t right = 0;
  for (int64_t i = 0; i < options_.num_classes; ++i) right += Count(i, i);
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  return MetricResult::Ratio(right, all, "no samples");
}

MetricResult ConfusionMatrix::Sensitivity(int64_t class_number) const {
  const auto [tp, fp, tn, fn] = Of(class_number);
  return MetricResult::Ratio(tp, tp + fn, absl::StrCat("no labels of class ", class_number));
}

MetricResult ConfusionMatrix::Specificity(int64_t class_number) const {
  const auto [tp, fp, tn, fn] = Of(class_number);
  return MetricResult::Ratio(tn, tn + fp,
                             absl::StrCat("no labels other than class ", class_number));
}

MetricResult ConfusionMatrix::Precision(int64_t class_number) const {
  const auto [tp, fp, tn, fn] = Of(class_number);
  return MetricResult::Ratio(tp, tp + fp, absl::StrCat("no predictions of class ", class_number));
}

MetricResult ConfusionMatrix::F1(int64_t class_number) const {
  const auto [tp, fp, tn, fn] = Of(class_number);
  return MetricResult::Ratio(2 * tp, 2 * tp + fp + fn,
                             absl::StrCat("no labels or predictions of class ", class_number));
}

MetricResult ConfusionMatrix::Iou(int64_t class_number) const {
  const auto [tp, fp, tn, fn] = Of(class_number);
  return MetricResult::Ratio(tp, tp + fp + fn,
                             absl::StrCat("no labels or predictions of class ", class_number));
}

MetricResult ConfusionMatrix::BalancedAccuracy() const {
  std::vector<MetricResult> parts;
  for (int64_t i = 0; i < options_.num_classes; ++i) parts.push_back(Sensitivity(i));
  return MetricResult::Mean(parts);
}

MetricResult ConfusionMatrix::MacroF1() const {
  std::vector<MetricResult> parts;
  for (int64_t i = 0; i < options_.num_classes; ++i) parts.push_back(F1(i));
  return MetricResult::Mean(parts);
}

std::string ConfusionMatrix::Description() const {
  std::string text = absl::StrCat("ConfusionMatrix(num_classes=", options_.num_classes);
  if (options_.ignore_label) absl::StrAppend(&text, ", ignore_label=", *options_.ignore_label);
  return text + ")";
}

std::vector<std::pair<std::string, MetricResult>> ConfusionMatrix::Results() const {
  std::vector<std::pair<std::string, MetricResult>> results = {
      {"accuracy", Accuracy()}, {"balanced_accuracy", BalancedAccuracy()}, {"macro_f1", MacroF1()}};
  for (int64_t i = 0; i < options_.num_classes; ++i) {
    results.emplace_back(absl::StrCat("sensitivity/", i), Sensitivity(i));
    results.emplace_back(absl::StrCat("specificity/", i), Specificity(i));
    results.emplace_back(absl::StrCat("precision/", i), Precision(i));
    results.emplace_back(absl::StrCat("f1/", i), F1(i));
  }
  return results;
}

MetricState ConfusionMatrix::State() const {
  MetricState state{
      {options_.num_classes, options_.ignore_label.has_value(), options_.ignore_label.value_or(0)},
      {}};
  state.integers.insert(state.integers.end(), counts_.begin(), counts_.end());
  return state;
}

absl::Status ConfusionMatrix::Merge(const MetricState& state) {
  const std::vector<int64_t>& integers = state.integers;
  if (integers.size() != 3 + counts_.size() || !state.reals.empty() ||
      integers[0] != options_.num_classes || integers[1] != options_.ignore_label.has_value() ||
      integers[2] != options_.ignore_label.value_or(0)) {
    return NotMyState();
  }
  std::transform(counts_.begin(), counts_.end(), integers.begin() + 3, counts_.begin(),
                 std::plus<>());
  return absl::OkStatus();
}

void ConfusionMatrix::Clear() {
  counts_.assign(static_cast<size_t>(options_.num_classes * options_.num_classes), 0);
}

}  // namespace medfusion
