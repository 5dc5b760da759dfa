#include "medfusion/metrics/inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cmath>

namespace medfusion {
namespace {

// A softmax in float32 may round a little past 1; logits do not stop there.
constexpr double kProbabilitySlack = 1e-3;

std::string Shape(const at::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]");
}

std::string Kind(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), Shape(tensor));
}

bool IsClassNumbers(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

absl::Status NotANumberError(int64_t nan, int64_t total) {
  return absl::InvalidArgumentError(
      absl::StrCat(nan, " of ", total,
                   " scores in this update are NaN; look for a diverged loss or a division by zero "
                   "in the model's output"));
}

absl::Status CheckScores(const std::vector<double>& scores, ScoreKind kind) {
  int64_t nan = 0;
  for (const double score : scores) nan += std::isnan(score);
  if (nan > 0) return NotANumberError(nan, static_cast<int64_t>(scores.size()));
  if (kind != ScoreKind::kProbability) return absl::OkStatus();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] < -kProbabilitySlack || scores[i] > 1.0 + kProbabilitySlack) {
      return absl::InvalidArgumentError(
          absl::StrCat("score ", i, " of this update is ", scores[i],
                       ", which is no probability; pass ScoreKind::kLogit for logits"));
    }
  }
  return absl::OkStatus();
}

// Class numbers [N, ...] from scores [N, C, ...] or from class numbers.
absl::StatusOr<at::Tensor> ReadClasses(const at::Tensor& predictions, const at::Tensor& labels,
                                       int64_t num_classes) {
  if (IsClassNumbers(predictions)) {
    if (predictions.sizes() != labels.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat("predicted classes ", Kind(predictions),
                                                     " and labels ", Kind(labels),
                                                     " differ in shape"));
    }
    return predictions;
  }
  std::vector<int64_t> expected = labels.sizes().vec();
  expected.insert(expected.begin() + 1, num_classes);
  if (!predictions.is_floating_point() || predictions.sizes() != at::IntArrayRef(expected)) {
    return absl::InvalidArgumentError(
        absl::StrCat("predictions are ", Kind(predictions), "; expected floating-point scores [",
                     absl::StrJoin(expected, ", "), "] or integer classes ", Shape(labels)));
  }
  // NaN is the largest of any numbers to max, as it is to argmax.
  if (predictions.numel() > 0 && predictions.max().isnan().item<bool>()) {
    return NotANumberError(predictions.isnan().sum().item<int64_t>(), predictions.numel());
  }
  return predictions.argmax(1);
}

// InvalidArgument for the first of `classes` that is not in 0..num_classes-1.
absl::Status CheckClasses(const at::Tensor& classes, std::string_view what, int64_t num_classes) {
  if (classes.numel() == 0) return absl::OkStatus();
  const auto [least, greatest] = classes.aminmax();
  if (least.item<int64_t>() >= 0 && greatest.item<int64_t>() < num_classes) {
    return absl::OkStatus();
  }
  const at::Tensor wrong = classes.lt(0).logical_or(classes.ge(num_classes)).nonzero();
  const int64_t first = wrong[0].item<int64_t>();
  return absl::InvalidArgumentError(
      absl::StrCat(wrong.size(0), " of ", classes.numel(), " ", std::string(what),
                   " are no class; element ", first, " of this update, flattened, is ",
                   classes[first].item<int64_t>(), "; expected 0..", num_classes - 1));
}

}  // namespace

absl::StatusOr<std::vector<double>> ReadNumbers(const at::Tensor& values) {
  if (!values.defined()) return absl::InvalidArgumentError("the tensor is undefined");
  if (values.is_complex()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor is ", Kind(values), "; expected real numbers"));
  }
  const at::Tensor flat = values.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = flat.const_data_ptr<double>();
  return std::vector<double>(data, data + flat.numel());
}

absl::StatusOr<std::vector<double>> ReadPositiveScores(const at::Tensor& scores, ScoreKind kind) {
  const bool one =
      scores.defined() && (scores.dim() == 1 || (scores.dim() == 2 && scores.size(1) == 1));
  const bool two = scores.defined() && scores.dim() == 2 && scores.size(1) == 2;
  if (!one && !two) {
    return absl::InvalidArgumentError(absl::StrCat("scores are ",
                                                   scores.defined() ? Kind(scores) : "undefined",
                                                   "; expected [N], [N, 1] or [N, 2]"));
  }
  const absl::StatusOr<std::vector<double>> numbers = ReadNumbers(scores);
  if (!numbers.ok()) return numbers.status();
  std::vector<double> result = *numbers;
  if (two) {
    result.resize(numbers->size() / 2);
    for (size_t i = 0; i < result.size(); ++i) {
      const double negative = kind == ScoreKind::kLogit ? (*numbers)[2 * i] : 0.0;
      result[i] = (*numbers)[2 * i + 1] - negative;
    }
  }
  const absl::Status valid = CheckScores(result, kind);
  if (!valid.ok()) return valid;
  return result;
}

absl::StatusOr<std::vector<int64_t>> ReadLabels(const at::Tensor& labels, int64_t num_classes) {
  if (!labels.defined() || !(labels.dim() == 1 || (labels.dim() == 2 && labels.size(1) == 1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "labels are ", labels.defined() ? Kind(labels) : "undefined", "; expected [N] or [N, 1]"));
  }
  const absl::StatusOr<std::vector<double>> numbers = ReadNumbers(labels);
  if (!numbers.ok()) return numbers.status();
  std::vector<int64_t> result;
  result.reserve(numbers->size());
  for (const double number : *numbers) {
    if (!(number >= 0.0 && number < static_cast<double>(num_classes)) ||
        number != std::floor(number)) {
      return absl::InvalidArgumentError(absl::StrCat("label ", result.size(), " of this update is ",
                                                     number, "; expected a whole number in 0..",
                                                     num_classes - 1));
    }
    result.push_back(static_cast<int64_t>(number));
  }
  return result;
}

absl::Status CheckSameLength(size_t scores, size_t labels) {
  if (scores == labels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(scores, " scores and ", labels, " labels; expected one label per score"));
}

absl::StatusOr<at::Tensor> CountClassPairs(const at::Tensor& predictions, const at::Tensor& labels,
                                           int64_t num_classes,
                                           std::optional<int64_t> ignore_label) {
  if (!labels.defined() || labels.dim() == 0 || !IsClassNumbers(labels)) {
    return absl::InvalidArgumentError(absl::StrCat("labels are ",
                                                   labels.defined() ? Kind(labels) : "undefined",
                                                   "; expected integer classes [N, ...]"));
  }
  if (!predictions.defined()) return absl::InvalidArgumentError("predictions are undefined");
  absl::StatusOr<at::Tensor> classes = ReadClasses(predictions.detach(), labels, num_classes);
  if (!classes.ok()) return classes.status();
  const int64_t cases = labels.size(0);
  const int64_t pixels = cases == 0 ? 0 : labels.numel() / cases;
  // Counted where the predictions are, so that a GPU sends num_classes^2 numbers per case, not
  // pixels.
  at::Tensor truth = labels.to(classes->device(), at::kLong).reshape({cases, pixels});
  at::Tensor predicted = classes->to(at::kLong).reshape({cases, pixels});
  at::Tensor case_number = at::arange(cases, truth.options()).unsqueeze(1).expand_as(truth);
  if (ignore_label.has_value()) {
    const at::Tensor counted = truth.ne(*ignore_label);
    truth = truth.masked_select(counted);
    predicted = predicted.masked_select(counted);
    case_number = case_number.masked_select(counted);
  }
  truth = truth.flatten();
  predicted = predicted.flatten();
  absl::Status valid = CheckClasses(truth, "labels", num_classes);
  if (valid.ok()) valid = CheckClasses(predicted, "predictions", num_classes);
  if (!valid.ok()) return valid;
  const at::Tensor pair =
      case_number.flatten().mul(num_classes).add(truth).mul(num_classes).add(predicted);
  return at::bincount(pair, {}, cases * num_classes * num_classes)
      .to(at::kCPU)
      .reshape({cases, num_classes, num_classes});
}

}  // namespace medfusion
