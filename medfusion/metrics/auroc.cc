#include "medfusion/metrics/auroc.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <stdexcept>

#include "medfusion/metrics/inputs.h"

namespace medfusion {
namespace {

// 2U: two for each (positive, negative) pair in the right order, one for each tie. 128 bits hold
// the pairs of any two lists.
unsigned __int128 TwiceU(const std::vector<double>& positives,
                         const std::vector<double>& negatives) {
  unsigned __int128 twice = 0;
  size_t below = 0;  // negatives less than the positive at hand
  size_t up_to = 0;  // negatives less than or equal to it
  for (const double positive : positives) {
    while (below < negatives.size() && negatives[below] < positive) ++below;
    while (up_to < negatives.size() && negatives[up_to] <= positive) ++up_to;
    twice += below + up_to;
  }
  return twice;
}

std::vector<double> Sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

void Auroc::Update(const at::Tensor& scores, const at::Tensor& labels) {
  const absl::StatusOr<std::vector<double>> values = ReadPositiveScores(scores, options_.kind);
  if (!values.ok()) return Refuse(values.status());
  const absl::StatusOr<std::vector<int64_t>> truths = ReadLabels(labels, 2);
  if (!truths.ok()) return Refuse(truths.status());
  const absl::Status lengths = CheckSameLength(values->size(), truths->size());
  if (!lengths.ok()) return Refuse(lengths);
  for (size_t i = 0; i < values->size(); ++i) Update((*values)[i], (*truths)[i] == 1);
}

void Auroc::Update(double score, bool positive) {
  if (score != score) {
    return Refuse(absl::InvalidArgumentError("the score is NaN; a NaN has no rank"));
  }
  (positive ? positives_ : negatives_).push_back(score);
}

MetricResult Auroc::Value() const {
  if (positives_.empty() && negatives_.empty()) return MetricResult::Undefined("no samples");
  if (positives_.empty()) return MetricResult::Undefined("no positive labels");
  if (negatives_.empty()) return MetricResult::Undefined("no negative labels");
  const auto pairs = static_cast<unsigned __int128>(positives_.size()) * negatives_.size();
  return MetricResult::Of(static_cast<double>(TwiceU(Sorted(positives_), Sorted(negatives_))) /
                          static_cast<double>(2 * pairs));
}

std::string Auroc::Description() const {
  return options_.kind == ScoreKind::kLogit ? "Auroc(logit)" : "Auroc(probability)";
}

MetricState Auroc::State() const {
  MetricState state{{static_cast<int64_t>(options_.kind), static_cast<int64_t>(positives_.size())},
                    positives_};
  state.reals.insert(state.reals.end(), negatives_.begin(), negatives_.end());
  return state;
}

absl::Status Auroc::Merge(const MetricState& state) {
  const auto total = static_cast<int64_t>(state.reals.size());
  if (state.integers.size() != 2 || state.integers[0] != static_cast<int64_t>(options_.kind) ||
      state.integers[1] < 0 || state.integers[1] > total) {
    return NotMyState();
  }
  const auto middle = state.reals.begin() + state.integers[1];
  positives_.insert(positives_.end(), state.reals.begin(), middle);
  negatives_.insert(negatives_.end(), middle, state.reals.end());
  return absl::OkStatus();
}

void Auroc::Clear() {
  positives_.clear();
  negatives_.clear();
}

MulticlassAuroc::MulticlassAuroc(int64_t num_classes) {
  if (num_classes < 2) {
    throw std::invalid_argument(
        absl::StrCat("MulticlassAuroc: num_classes is ", num_classes, "; expected at least 2"));
  }
  // The scores of one class are only compared with one another: any numbers will do.
  classes_.assign(static_cast<size_t>(num_classes), Auroc({.kind = ScoreKind::kLogit}));
}

void MulticlassAuroc::Update(const at::Tensor& scores, const at::Tensor& labels) {
  const auto num_classes = static_cast<int64_t>(classes_.size());
  if (!scores.defined() || scores.dim() != 2 || scores.size(1) != num_classes) {
    const std::string got = scores.defined()
                                ? absl::StrCat("[", absl::StrJoin(scores.sizes(), ", "), "]")
                                : "undefined";
    return Refuse(absl::InvalidArgumentError(
        absl::StrCat("scores are ", got, "; expected [N, ", num_classes, "]")));
  }
  const absl::StatusOr<std::vector<int64_t>> truths = ReadLabels(labels, num_classes);
  if (!truths.ok()) return Refuse(truths.status());
  const absl::Status lengths = CheckSameLength(static_cast<size_t>(scores.size(0)), truths->size());
  if (!lengths.ok()) return Refuse(lengths);
  const absl::StatusOr<std::vector<double>> values =
      ReadPositiveScores(scores.reshape({-1}), ScoreKind::kLogit);
  if (!values.ok()) return Refuse(values.status());
  for (size_t i = 0; i < values->size(); ++i) {
    const size_t class_number = i % classes_.size();
    const auto truth = static_cast<size_t>((*truths)[i / classes_.size()]);
    classes_[class_number].Update((*values)[i], truth == class_number);
  }
}

MetricResult MulticlassAuroc::Value(int64_t class_number) const {
  const MetricResult value = classes_.at(static_cast<size_t>(class_number)).Value();
  if (value.defined()) return value;
  return MetricResult::Undefined(absl::StrCat("class ", class_number, ": ", value.reason()));
}

MetricResult MulticlassAuroc::MacroValue() const {
  std::vector<MetricResult> parts;
  for (size_t i = 0; i < classes_.size(); ++i) parts.push_back(Value(static_cast<int64_t>(i)));
  return MetricResult::Mean(parts);
}

std::string MulticlassAuroc::Description() const {
  return absl::StrCat("MulticlassAuroc(num_classes=", classes_.size(), ")");
}

std::vector<std::pair<std::string, MetricResult>> MulticlassAuroc::Results() const {
  std::vector<std::pair<std::string, MetricResult>> results;
  std::vector<MetricResult> parts;
  for (size_t i = 0; i < classes_.size(); ++i) {
    parts.push_back(Value(static_cast<int64_t>(i)));
    results.emplace_back(absl::StrCat("auroc/", i), parts.back());
  }
  results.insert(results.begin(), {"macro_auroc", MetricResult::Mean(parts)});
  return results;
}

MetricState MulticlassAuroc::State() const {
  MetricState state{{static_cast<int64_t>(classes_.size())}, {}};
  for (const Auroc& one : classes_) {
    const MetricState part = one.State();
    state.integers.push_back(part.integers[1]);
    state.integers.push_back(static_cast<int64_t>(part.reals.size()));
    state.reals.insert(state.reals.end(), part.reals.begin(), part.reals.end());
  }
  return state;
}

absl::Status MulticlassAuroc::Merge(const MetricState& state) {
  const size_t num_classes = classes_.size();
  if (state.integers.size() != 1 + 2 * num_classes ||
      state.integers[0] != static_cast<int64_t>(num_classes)) {
    return NotMyState();
  }
  int64_t left = static_cast<int64_t>(state.reals.size());
  for (size_t i = 0; i < num_classes; ++i) {
    const int64_t positives = state.integers[1 + 2 * i];
    const int64_t size = state.integers[2 + 2 * i];
    if (positives < 0 || positives > size || size > left) return NotMyState();
    left -= size;
  }
  if (left != 0) return NotMyState();
  auto begin = state.reals.begin();
  for (size_t i = 0; i < num_classes; ++i) {
    const auto end = begin + state.integers[2 + 2 * i];
    const absl::Status merged =
        classes_[i].Merge({{static_cast<int64_t>(ScoreKind::kLogit), state.integers[1 + 2 * i]},
                           std::vector<double>(begin, end)});
    if (!merged.ok()) return merged;
    begin = end;
  }
  return absl::OkStatus();
}

void MulticlassAuroc::Clear() {
  for (Auroc& one : classes_) one.Reset();
}

}  // namespace medfusion
