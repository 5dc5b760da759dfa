// Any module, trained by a strategy that is chosen by name.
#ifndef MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_
#define MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "medfusion/base/status.h"
#include "medfusion/ddp/ddp_wrapper.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/setup.h"
#include "medfusion/train/model_strategy.h"

namespace medfusion {

// Net as of DDPWrapper: a module class, or the holder that TORCH_MODULE makes.
template <typename Net>
class DistributedModel : public ModelStrategy {
 public:
  using Handle = typename WrappedModule<Net>::Handle;

  // What CreateDistributedModel does; throws where that returns an error.
  DistributedModel(Handle module, std::string_view strategy, std::shared_ptr<ProcessGroup> group)
      : impl_(WrappedModule<Net>::Pointer(module)) {
    if (group != nullptr) impl_->to(group->device());
    if (strategy == "ddp") {
      DDPOptions options;
      options.group = std::move(group);
      ddp_.emplace(std::move(module), std::move(options));
    }
  }

  // The module's own forward. Collective as the strategy says.
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    if (ddp_.has_value()) return ddp_->forward(std::forward<Args>(args)...);
    return impl_->forward(std::forward<Args>(args)...);
  }

  std::string_view name() const override { return ddp_.has_value() ? "ddp" : "none"; }
  torch::nn::Module& module() override { return *impl_; }
  std::vector<at::Tensor> parameters() const override {
    return ddp_.has_value() ? ddp_->parameters() : impl_->parameters();
  }
  std::shared_ptr<void> NoSync() override {
    if (!ddp_.has_value()) return nullptr;
    return std::make_shared<NoSyncGuard>(ddp_->replica().reducer());
  }

 private:
  std::shared_ptr<typename WrappedModule<Net>::Impl> impl_;
  std::optional<DDPWrapper<Net>> ddp_;
};

// Collective. Moves `model` to this rank's device and makes it ready to be trained by `strategy`:
// "none" (one rank alone) or "ddp". The default group is used when none is given. InvalidArgument
// for an unknown strategy, naming those that are known, and whatever the strategy objects to.
template <typename Net>
absl::StatusOr<std::unique_ptr<DistributedModel<Net>>> CreateDistributedModel(
    Net model, std::string_view strategy, std::shared_ptr<ProcessGroup> group = nullptr) {
  if (group == nullptr) group = DefaultGroup();
  MEDFUSION_RETURN_IF_ERROR(CheckStrategy(strategy, group == nullptr ? 1 : group->size()));
  std::unique_ptr<DistributedModel<Net>> result;
  MEDFUSION_RETURN_IF_ERROR(CatchAsStatus([&] {
    result = std::make_unique<DistributedModel<Net>>(std::move(model), strategy, std::move(group));
  }));
  return result;
}

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_DISTRIBUTED_MODEL_H_
