#include "medfusion/train/train_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <absl/strings/str_cat.h>

#include <memory>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/data/tensors.h"

namespace medfusion {
namespace {

constexpr char kFirstMoment[] = ".exp_avg";
constexpr char kSecondMoment[] = ".exp_avg_sq";
constexpr char kSteps[] = ".step";

at::Tensor Copy(const at::Tensor& tensor) { return tensor.detach().cpu().clone(); }

absl::Status CopyInto(const NamedTensors& from, const std::string& name, const at::Tensor& to) {
  const auto found = from.find(name);
  if (found == from.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has no ", name, "; it is of another model"));
  }
  if (found->second.sizes() != to.sizes() || found->second.scalar_type() != to.scalar_type()) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint's ", name, " is ",
                                                   Describe(found->second), ", but the model's is ",
                                                   Describe(to), "; it is of another model"));
  }
  const at::NoGradGuard no_grad;
  to.copy_(found->second);
  return absl::OkStatus();
}

}  // namespace

void CaptureModule(const torch::nn::Module& module, const std::string& prefix, NamedTensors& into) {
  for (const auto& entry : module.named_parameters()) {
    into[prefix + entry.key()] = Copy(entry.value());
  }
  for (const auto& entry : module.named_buffers()) into[prefix + entry.key()] = Copy(entry.value());
}

absl::Status RestoreModule(const NamedTensors& from, const std::string& prefix,
                           torch::nn::Module& module) {
  for (const auto& entry : module.named_parameters()) {
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, prefix + entry.key(), entry.value()));
  }
  for (const auto& entry : module.named_buffers()) {
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, prefix + entry.key(), entry.value()));
  }
  return absl::OkStatus();
}

void CaptureAdamW(const torch::nn::Module& module, torch::optim::AdamW& optimizer,
                  const std::string& prefix, NamedTensors& into) {
  for (const auto& entry : module.named_parameters()) {
    const auto found = optimizer.state().find(entry.value().unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // it has had no gradient yet
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    into[prefix + entry.key() + kFirstMoment] = Copy(state.exp_avg());
    into[prefix + entry.key() + kSecondMoment] = Copy(state.exp_avg_sq());
    into[prefix + entry.key() + kSteps] = at::scalar_tensor(state.step(), at::kLong);
  }
}

absl::Status RestoreAdamW(const NamedTensors& from, const std::string& prefix,
                          const torch::nn::Module& module, torch::optim::AdamW& optimizer) {
  for (const auto& entry : module.named_parameters()) {
    const std::string name = prefix + entry.key();
    if (!from.contains(name + kSteps)) continue;
    const at::Tensor like = entry.value().detach();
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    state->exp_avg(at::empty_like(like));
    state->exp_avg_sq(at::empty_like(like));
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, name + kFirstMoment, state->exp_avg()));
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, name + kSecondMoment, state->exp_avg_sq()));
    state->step(from.at(name + kSteps).item<int64_t>());
    optimizer.state()[entry.value().unsafeGetTensorImpl()] = std::move(state);
  }
  return absl::OkStatus();
}

}  // namespace medfusion
