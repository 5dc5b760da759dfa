// Any module, trained by a strategy that is chosen by name.
#ifndef MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_
#define MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "medfusion/base/status.h"
#include "medfusion/ddp/ddp_wrapper.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/setup.h"
#include "medfusion/fsdp/fsdp_wrapper.h"
#include "medfusion/train/model_strategy.h"

namespace medfusion {

// Net as of DDPWrapper: a module class, or the holder that TORCH_MODULE makes.
template <typename Net>
class DistributedModel : public ModelStrategy {
 public:
  using Handle = typename WrappedModule<Net>::Handle;
  using Impl = typename WrappedModule<Net>::Impl;

  // What CreateDistributedModel does; throws where that returns an error.
  DistributedModel(Handle module, const StrategyOptions& strategy,
                   std::shared_ptr<ProcessGroup> group)
      : impl_(WrappedModule<Net>::Pointer(module)), precision_(strategy.mixed_precision) {
    if (group != nullptr) device_ = group->device_type();
    if (group != nullptr) impl_->to(group->device());
    if (strategy.name == "ddp") {
      DDPOptions options;
      options.group = std::move(group);
      ddp_.emplace(std::move(module), std::move(options));
    } else if (strategy.name == "fsdp") {
      fsdp_.emplace(std::move(module), OptionsOf(strategy, std::move(group)));
    }
  }

  // The module's own forward. Collective as the strategy says.
  template <typename... Args>
  auto forward(Args&&... args) -> decltype(std::declval<Impl&>().forward(args...)) {
    using Result = decltype(impl_->forward(args...));
    if (fsdp_.has_value()) return fsdp_->forward(std::forward<Args>(args)...);
    const AutocastScope autocast(device_, ComputeDtype(precision_));
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      at::Tensor result = ForwardHere(std::forward<Args>(args)...);
      const bool widen = precision_ != Precision::kNone && result.is_floating_point();
      return widen ? result.to(at::kFloat) : result;
    } else {
      return ForwardHere(std::forward<Args>(args)...);
    }
  }

  std::string_view name() const override {
    return ddp_.has_value() ? "ddp" : fsdp_.has_value() ? "fsdp" : "none";
  }
  torch::nn::Module& module() override { return *impl_; }
  std::vector<at::Tensor> parameters() const override {
    return ddp_.has_value()    ? ddp_->parameters()
           : fsdp_.has_value() ? fsdp_->parameters()
                               : impl_->parameters();
  }
  std::vector<ShardedTensor> DescribeState() const override {
    if (fsdp_.has_value()) return fsdp_->DescribeState();
    std::vector<ShardedTensor> state;
    for (const auto& entry : impl_->named_parameters()) {
      const at::Tensor& tensor = entry.value();
      state.push_back({entry.key(), tensor.sizes().vec(), tensor.strides().vec(), 0, tensor});
    }
    return state;
  }
  std::shared_ptr<void> WholeParameters(bool writeback) override {
    return fsdp_.has_value() ? std::make_shared<FullParameters>(*fsdp_, writeback) : nullptr;
  }
  std::shared_ptr<void> NoSync() override {
    if (ddp_.has_value()) return std::make_shared<NoSyncGuard>(ddp_->replica().reducer());
    if (fsdp_.has_value()) return std::make_shared<NoReduceGuard>(Sharded().reducer());
    return nullptr;
  }
  void ForgetGradients() override {
    if (fsdp_.has_value()) fsdp_->zero_grad();
  }
  bool collective_forward() const override { return fsdp_.has_value(); }
  bool needs_loss_scaling() const override { return precision_ == Precision::kFp16; }
  double ClipGradNorm(double max_norm) override {
    return fsdp_.has_value() ? fsdp_->ClipGradNorm(max_norm).norm
                             : ModelStrategy::ClipGradNorm(max_norm);
  }

 private:
  static FSDPOptions OptionsOf(const StrategyOptions& strategy,
                               std::shared_ptr<ProcessGroup> group) {
    FSDPOptions options;
    options.sharding_strategy = strategy.sharding_strategy;
    options.min_num_params = strategy.min_num_params;
    options.group = std::move(group);
    options.mixed_precision.param_dtype = ComputeDtype(strategy.mixed_precision);
    if (options.mixed_precision.param_dtype) options.mixed_precision.output_dtype = at::kFloat;
    return options;
  }

  ShardedModel& Sharded() { return fsdp_->sharded_model(); }

  template <typename... Args>
  auto ForwardHere(Args&&... args) -> decltype(std::declval<Impl&>().forward(args...)) {
    if (ddp_.has_value()) return ddp_->forward(std::forward<Args>(args)...);
    return impl_->forward(std::forward<Args>(args)...);
  }

  std::shared_ptr<Impl> impl_;
  const Precision precision_;
  c10::DeviceType device_ = c10::DeviceType::CPU;
  std::optional<DDPWrapper<Net>> ddp_;
  std::optional<FSDPWrapper<Net>> fsdp_;
};

// Collective. Moves `model` to this rank's device and makes it ready to be trained by `strategy`.
// The default group is used when none is given. InvalidArgument for an unknown strategy, naming
// those that are known, and whatever the strategy objects to.
template <typename Net>
absl::StatusOr<std::unique_ptr<DistributedModel<Net>>> CreateDistributedModel(
    Net model, const StrategyOptions& strategy, std::shared_ptr<ProcessGroup> group = nullptr) {
  if (group == nullptr) group = DefaultGroup();
  MEDFUSION_RETURN_IF_ERROR(CheckStrategy(strategy, group == nullptr ? 1 : group->size()));
  std::unique_ptr<DistributedModel<Net>> result;
  MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] {
    result = std::make_unique<DistributedModel<Net>>(std::move(model), strategy, std::move(group));
  }));
  return result;
}

// By name alone, with the strategy's defaults: "none", "ddp" or "fsdp".
template <typename Net>
absl::StatusOr<std::unique_ptr<DistributedModel<Net>>> CreateDistributedModel(
    Net model, std::string_view strategy, std::shared_ptr<ProcessGroup> group = nullptr) {
  return CreateDistributedModel(std::move(model), StrategyOptions{.name = std::string(strategy)},
                                std::move(group));
}

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_
