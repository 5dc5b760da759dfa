#include "medfusion/metrics/segmentation.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "medfusion/metrics/inputs.h"

namespace medfusion {
namespace {

constexpr size_t kHeader = 5;            // options at the head of a state's integers
constexpr size_t kIntegersPerClass = 6;  // four counts, then the numbers of terms of dice and iou

std::string NoCases(int64_t class_number) {
  return absl::StrCat("no case has class ", class_number);
}

MetricResult MeanOverCases(const ExactSum& sum, int64_t cases, int64_t class_number) {
  if (cases == 0) return MetricResult::Undefined(NoCases(class_number));
  ExactSum count;
  count.AddInteger(cases);
  return MetricResult::Of(Quotient(sum, count));
}

}  // namespace

SegmentationMetrics::SegmentationMetrics(const SegmentationOptions& options) : options_(options) {
  if (options.num_classes < 2) {
    throw std::invalid_argument(absl::StrCat("SegmentationOptions::num_classes is ",
                                             options.num_classes, "; expected at least 2"));
  }
  Clear();
}

void SegmentationMetrics::AddCase(ClassCounts& counts, int64_t tp, int64_t fp, int64_t fn) {
  if (tp + fp + fn == 0) return;
  counts.true_positives += tp;
  counts.false_positives += fp;
  counts.false_negatives += fn;
  counts.cases += 1;
  counts.dice.Add(static_cast<double>(2 * tp) / static_cast<double>(2 * tp + fp + fn));
  counts.iou.Add(static_cast<double>(tp) / static_cast<double>(tp + fp + fn));
}

void SegmentationMetrics::Update(const at::Tensor& predictions, const at::Tensor& labels) {
  const absl::StatusOr<at::Tensor> pairs =
      CountClassPairs(predictions, labels, options_.num_classes, options_.ignore_label);
  if (!pairs.ok()) return Refuse(pairs.status());
  const at::Tensor right = pairs->diagonal(0, 1, 2).contiguous();
  const at::Tensor labelled = pairs->sum(2).contiguous();
  const at::Tensor predicted = pairs->sum(1).contiguous();
  for (int64_t i = 0; i < right.numel(); ++i) {
    const int64_t tp = right.const_data_ptr<int64_t>()[i];
    AddCase(classes_[static_cast<size_t>(i % options_.num_classes)], tp,
            predicted.const_data_ptr<int64_t>()[i] - tp,
            labelled.const_data_ptr<int64_t>()[i] - tp);
  }
}

MetricResult SegmentationMetrics::Dice(int64_t class_number) const {
  const ClassCounts& counts = Of(class_number);
  return MeanOverCases(counts.dice, counts.cases, class_number);
}

MetricResult SegmentationMetrics::Iou(int64_t class_number) const {
  const ClassCounts& counts = Of(class_number);
  return MeanOverCases(counts.iou, counts.cases, class_number);
}

MetricResult SegmentationMetrics::PooledDice(int64_t class_number) const {
  const ClassCounts& counts = Of(class_number);
  const int64_t twice = 2 * counts.true_positives;
  return MetricResult::Ratio(twice, twice + counts.false_positives + counts.false_negatives,
                             NoCases(class_number));
}

MetricResult SegmentationMetrics::PooledIou(int64_t class_number) const {
  const ClassCounts& counts = Of(class_number);
  return MetricResult::Ratio(
      counts.true_positives,
      counts.true_positives + counts.false_positives + counts.false_negatives,
      NoCases(class_number));
}

MetricResult SegmentationMetrics::MeanDice() const {
  return MeanOfClasses(&SegmentationMetrics::Dice);
}

MetricResult SegmentationMetrics::MeanIou() const {
  return MeanOfClasses(&SegmentationMetrics::Iou);
}

MetricResult SegmentationMetrics::MeanOfClasses(MetricResult (SegmentationMetrics::*value)(int64_t)
                                                    const) const {
  std::vector<MetricResult> parts;
  for (int64_t i = 0; i < options_.num_classes; ++i) {
    if (options_.background == i) continue;
    if (const MetricResult part = (this->*value)(i); part.defined()) parts.push_back(part);
  }
  if (parts.empty()) return MetricResult::Undefined("no case has any class but the background");
  return MetricResult::Mean(parts);
}

std::string SegmentationMetrics::Description() const {
  std::string text = absl::StrCat("SegmentationMetrics(num_classes=", options_.num_classes);
  if (options_.background) absl::StrAppend(&text, ", background=", *options_.background);
  if (options_.ignore_label) absl::StrAppend(&text, ", ignore_label=", *options_.ignore_label);
  return text + ")";
}

std::vector<std::pair<std::string, MetricResult>> SegmentationMetrics::Results() const {
  std::vector<std::pair<std::string, MetricResult>> results = {{"dice", MeanDice()},
                                                               {"iou", MeanIou()}};
  for (int64_t i = 0; i < options_.num_classes; ++i) {
    if (options_.background == i) continue;
    results.emplace_back(absl::StrCat("dice/", i), Dice(i));
    results.emplace_back(absl::StrCat("iou/", i), Iou(i));
    results.emplace_back(absl::StrCat("pooled_dice/", i), PooledDice(i));
  }
  return results;
}

MetricState SegmentationMetrics::State() const {
  MetricState state{
      {options_.num_classes, options_.background.has_value(), options_.background.value_or(0),
       options_.ignore_label.has_value(), options_.ignore_label.value_or(0)},
      {}};
  for (const ClassCounts& counts : classes_) {
    const std::vector<double> dice = counts.dice.Terms();
    const std::vector<double> iou = counts.iou.Terms();
    for (const int64_t number :
         {counts.true_positives, counts.false_positives, counts.false_negatives, counts.cases,
          static_cast<int64_t>(dice.size()), static_cast<int64_t>(iou.size())}) {
      state.integers.push_back(number);
    }
    state.reals.insert(state.reals.end(), dice.begin(), dice.end());
    state.reals.insert(state.reals.end(), iou.begin(), iou.end());
  }
  return state;
}

absl::Status SegmentationMetrics::Merge(const MetricState& state) {
  const std::vector<int64_t> options = SegmentationMetrics(options_).State().integers;
  const std::vector<int64_t>& integers = state.integers;
  if (integers.size() != options.size() ||
      !std::equal(options.begin(), options.begin() + kHeader, integers.begin())) {
    return NotMyState();
  }
  std::vector<ClassCounts> merged = classes_;
  std::span<const double> terms(state.reals);
  for (size_t i = 0; i < merged.size(); ++i) {
    const int64_t* numbers = &integers[kHeader + i * kIntegersPerClass];
    merged[i].true_positives += numbers[0];
    merged[i].false_positives += numbers[1];
    merged[i].false_negatives += numbers[2];
    merged[i].cases += numbers[3];
    for (ExactSum* sum : {&merged[i].dice, &merged[i].iou}) {
      const int64_t size = sum == &merged[i].dice ? numbers[4] : numbers[5];
      if (size < 0 || static_cast<size_t>(size) > terms.size()) return NotMyState();
      for (const double term : terms.first(static_cast<size_t>(size))) sum->Add(term);
      terms = terms.subspan(static_cast<size_t>(size));
    }
  }
  if (!terms.empty()) return NotMyState();
  classes_ = std::move(merged);
  return absl::OkStatus();
}

void SegmentationMetrics::Clear() {
  classes_.assign(static_cast<size_t>(options_.num_classes), ClassCounts());
}

const SegmentationMetrics::ClassCounts& SegmentationMetrics::Of(int64_t class_number) const {
  if (class_number < 0 || class_number >= options_.num_classes) {
    throw std::out_of_range(absl::StrCat("SegmentationMetrics: class ", class_number,
                                         " is out of range; expected 0..",
                                         options_.num_classes - 1));
  }
  return classes_[static_cast<size_t>(class_number)];
}

}  // namespace medfusion
