#include "medfusion/data/standardizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "medfusion/data/tensors.h"

namespace medfusion {

Standardizer::Standardizer(at::Tensor mean, at::Tensor std, std::vector<int64_t> constant_columns)
    : mean_(std::move(mean)),
      std_(std::move(std)),
      constant_columns_(std::move(constant_columns)) {}

absl::StatusOr<Standardizer> Standardizer::Fit(const at::Tensor& features,
                                               std::span<const size_t> rows) {
  if (features.dim() != 2 || !features.is_floating_point() || !features.is_cpu()) {
    return absl::InvalidArgumentError(
        absl::StrCat("standardizer: the features are ", Describe(features),
                     "; expected [N, F], floating point, on the CPU"));
  }
  if (rows.empty()) return absl::InvalidArgumentError("standardizer: there are no training rows");
  for (const size_t row : rows) {
    if (row < static_cast<size_t>(features.size(0))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("standardizer: row ", row, " of ", features.size(0), " rows of features"));
  }
  const int64_t columns = features.size(1);
  const at::Tensor values =
      features.detach().index_select(0, IndexTensor(rows)).to(at::kDouble).contiguous();
  const double* value = values.const_data_ptr<double>();
  at::Tensor mean = at::zeros({columns}, at::kDouble);
  at::Tensor std = at::ones({columns}, at::kDouble);
  std::vector<int64_t> constant;
  for (int64_t column = 0; column < columns; ++column) {
    double sum = 0, low = INFINITY, high = -INFINITY;
    size_t count = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      const double x = value[row * columns + column];
      if (std::isnan(x)) continue;
      if (std::isinf(x)) {
        return absl::InvalidArgumentError(absl::StrCat("standardizer: row ", rows[row], ", column ",
                                                       column, " is infinite; correct the data"));
      }
      sum += x;
      low = std::min(low, x);
      high = std::max(high, x);
      ++count;
    }
    const double center = count == 0 ? 0 : sum / static_cast<double>(count);
    mean.mutable_data_ptr<double>()[column] = center;
    // Not std == 0: the rounded mean of equal values may differ from them.
    if (count == 0 || low == high) {
      if (count > 0) mean.mutable_data_ptr<double>()[column] = low;
      constant.push_back(column);
      continue;
    }
    double squares = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      const double x = value[row * columns + column] - center;
      if (!std::isnan(x)) squares += x * x;
    }
    std.mutable_data_ptr<double>()[column] = std::sqrt(squares / static_cast<double>(count));
  }
  return Standardizer(std::move(mean), std::move(std), std::move(constant));
}

absl::StatusOr<Standardizer> Standardizer::FromState(
    const std::map<std::string, at::Tensor>& state) {
  for (const char* name : {"mean", "std"}) {
    if (state.count(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("standardizer: the state has no '", name, "'"));
  }
  const at::Tensor mean = state.at("mean").detach().to(at::kCPU, at::kDouble).clone();
  const at::Tensor std = state.at("std").detach().to(at::kCPU, at::kDouble).clone();
  if (mean.dim() != 1 || std.sizes() != mean.sizes()) {
    return absl::InvalidArgumentError(absl::StrCat("standardizer: the state's mean is ",
                                                   Describe(mean), " and its std ", Describe(std),
                                                   "; expected [F] both"));
  }
  if (!at::isfinite(mean).all().item<bool>() || !at::isfinite(std).all().item<bool>() ||
      !std.gt(0).all().item<bool>()) {
    return absl::InvalidArgumentError(
        "standardizer: the state holds a mean that is not finite or a std that is not positive");
  }
  return Standardizer(mean, std, {});
}

at::Tensor Standardizer::Apply(const at::Tensor& features) const {
  TORCH_CHECK(features.dim() == 2 && features.size(1) == mean_.size(0),
              "standardizer: features of ", Describe(features), " do not fit statistics of ",
              mean_.size(0), " columns");
  const at::Tensor wide = features.to(at::kDouble);
  const at::Tensor scaled = wide.sub(mean_.to(wide.device())).div(std_.to(wide.device()));
  return at::nan_to_num(scaled, 0.0).to(features.scalar_type());
}

std::map<std::string, at::Tensor> Standardizer::state() const {
  return {{"mean", mean_.clone()}, {"std", std_.clone()}};
}

}  // namespace medfusion
