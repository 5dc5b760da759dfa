#include "medfusion/fsdp/gradient_norm.h"

#include <ATen/ops/full.h>
#include <absl/strings/str_cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace medfusion {
namespace {

double Reduced(double value, ReduceOp op, ProcessGroup& group) {
  at::Tensor tensor =
      at::full({1}, value, at::TensorOptions(at::kDouble).device(group.device_type()));
  group.AllReduce(tensor, op)->Wait();
  return tensor.item<double>();
}

}  // namespace

GradientNorm GlobalGradientNorm(std::span<const at::Tensor> gradients, ProcessGroup& shards,
                                ProcessGroup& all) {
  c10::AutoGradMode no_grad(false);
  double largest = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    const double value = gradient.abs().max().item<double>();
    // The maximum of a collective may lose a NaN; infinity it cannot.
    largest =
        std::isfinite(value) ? std::max(largest, value) : std::numeric_limits<double>::infinity();
    if (!std::isfinite(largest)) break;
  }
  largest = Reduced(largest, ReduceOp::kMax, all);
  if (!std::isfinite(largest)) return {largest, false};
  if (largest == 0) return {0, true};
  double sum = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    sum += gradient.to(at::kDouble).div(largest).square().sum().item<double>();
  }
  const double norm = largest * std::sqrt(Reduced(sum, ReduceOp::kSum, shards));
  return {norm, std::isfinite(norm)};
}

GradientNorm ClipGlobalGradientNorm(std::span<const at::Tensor> gradients, double max_norm,
                                    ProcessGroup& shards, ProcessGroup& all) {
  if (!(max_norm >= 0)) {
    throw std::invalid_argument(
        absl::StrCat("max_norm is ", max_norm, "; expected a number that is not negative"));
  }
  const GradientNorm result = GlobalGradientNorm(gradients, shards, all);
  if (!result.finite || result.norm <= max_norm) return result;
  c10::AutoGradMode no_grad(false);
  for (const at::Tensor& gradient : gradients) gradient.mul_(max_norm / result.norm);
  return result;
}

}  // namespace medfusion
