#include "medfusion/optim/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>

#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "medfusion/distributed/setup.h"

namespace medfusion {
namespace {

void Require(bool holds, const char* name, double value, const char* expected) {
  if (holds) return;
  throw std::invalid_argument(
      absl::StrCat("GradScaler: ", name, "=", value, " is out of range; expected ", expected));
}

// float32, as PyTorch keeps it, so that both have the same scale after the same steps.
double Rounded(double scale) { return static_cast<float>(scale); }

// What the kernel takes in one call.
struct UnscaleBatch {
  c10::Device device;
  c10::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

std::vector<UnscaleBatch> Sort(std::span<const at::Tensor> gradients) {
  std::vector<UnscaleBatch> batches;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const at::Tensor values = gradients[i].is_sparse() ? gradients[i]._values() : gradients[i];
    if (values.scalar_type() == at::kHalf) {
      throw std::invalid_argument(absl::StrCat(
          "GradScaler: gradient ", i,
          " is float16 and would underflow when it is divided by the scale; keep parameters in "
          "float32 and compute in float16 (FSDPOptions::mixed_precision, or autocast)"));
    }
    if (values.numel() == 0) continue;
    UnscaleBatch* batch = nullptr;
    for (UnscaleBatch& candidate : batches) {
      if (candidate.device == values.device() && candidate.dtype == values.scalar_type()) {
        batch = &candidate;
      }
    }
    if (batch == nullptr) {
      batch = &batches.emplace_back(UnscaleBatch{values.device(), values.scalar_type(), {}});
    }
    batch->gradients.push_back(values);
  }
  return batches;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) {
  Require(options_.growth_factor >= 1, "growth_factor", options_.growth_factor, "1 or more");
  Require(options_.backoff_factor > 0 && options_.backoff_factor < 1, "backoff_factor",
          options_.backoff_factor, "a number between 0 and 1");
  Require(options_.growth_interval >= 1, "growth_interval",
          static_cast<double>(options_.growth_interval), "1 or more");
  if (options_.group == nullptr) options_.group = DefaultGroup();
  SetState({.scale = options_.init_scale});
}

void GradScaler::SetState(const GradScalerState& state) {
  Require(Rounded(state.scale) > 0 && std::isfinite(Rounded(state.scale)), "scale", state.scale,
          "a positive number that float32 holds");
  Require(state.clean_steps >= 0, "clean_steps", static_cast<double>(state.clean_steps),
          "0 or more");
  state_ = {Rounded(state.scale), state.clean_steps};
  rounds_.clear();
}

at::Tensor GradScaler::Scale(const at::Tensor& loss) const {
  return options_.enabled ? loss.mul(state_.scale) : loss;
}

bool GradScaler::UnscaleHere(std::span<const at::Tensor> gradients) const {
  const at::NoGradGuard no_grad;
  const double inverse = Rounded(1.0 / state_.scale);
  bool finite = true;
  for (UnscaleBatch& batch : Sort(gradients)) {
    const auto options = at::TensorOptions(batch.device).dtype(at::kFloat);
    at::Tensor found = at::zeros({1}, options);
    at::_amp_foreach_non_finite_check_and_unscale_(batch.gradients, found,
                                                   at::full({1}, inverse, options));
    finite = finite && found.item<float>() == 0;
  }
  return finite;
}

bool GradScaler::OnAllRanks(bool finite) const {
  if (options_.group == nullptr || options_.group->size() == 1) return finite;
  at::Tensor overflows = at::full({1}, finite ? 0.0 : 1.0,
                                  at::TensorOptions(options_.group->device()).dtype(at::kFloat));
  options_.group->AllReduce(overflows, ReduceOp::kMax)->Wait();
  return overflows.item<float>() == 0;
}

bool GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return true;
  if (rounds_.contains(&optimizer)) {
    throw std::logic_error(
        "GradScaler: Unscale was called twice for an optimizer, or after its Step, without an "
        "Update between them");
  }
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) gradients.push_back(parameter.grad());
  }
  const bool finite = OnAllRanks(UnscaleHere(gradients));
  rounds_[&optimizer] = {.finite = finite};
  return finite;
}

bool GradScaler::Unscale(std::span<const at::Tensor> gradients) {
  if (!options_.enabled) return true;
  const bool finite = OnAllRanks(UnscaleHere(gradients));
  Round& round = rounds_[nullptr];
  round.finite = round.finite && finite;
  return finite;
}

bool GradScaler::Step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!rounds_.contains(&optimizer)) Unscale(optimizer);
  Round& round = rounds_[&optimizer];
  if (round.stepped) {
    throw std::logic_error("GradScaler: Step was called twice without an Update between them");
  }
  round.stepped = true;
  if (round.finite) optimizer.step();
  return round.finite;
}

void GradScaler::Update() {
  if (!options_.enabled) return;
  if (rounds_.empty()) {
    throw std::logic_error("GradScaler: Update was called without an Unscale or a Step before it");
  }
  bool finite = true;
  for (const auto& [optimizer, round] : rounds_) finite = finite && round.finite;
  rounds_.clear();
  if (!finite) {
    // A scale of zero could never grow again.
    const double smaller = Rounded(state_.scale * options_.backoff_factor);
    state_ = {smaller > 0 ? smaller : state_.scale, 0};
    return;
  }
  if (++state_.clean_steps < options_.growth_interval) return;
  const double larger = Rounded(state_.scale * options_.growth_factor);
  state_ = {std::isfinite(larger) ? larger : state_.scale, 0};
}

}  // namespace medfusion
