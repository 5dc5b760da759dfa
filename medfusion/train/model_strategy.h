// What training needs of a model that is spread over ranks, whatever its forward looks like.
#ifndef MEDFUSION_TRAIN_MODEL_STRATEGY_H_
#define MEDFUSION_TRAIN_MODEL_STRATEGY_H_

#include <ATen/core/Tensor.h>
#include <absl/status/status.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace medfusion {

// One strategy's hold on one model. Used by one thread.
class ModelStrategy {
 public:
  virtual ~ModelStrategy() = default;

  // "none", "ddp".
  virtual std::string_view name() const = 0;
  // The model itself; its parameters have the names of a checkpoint.
  virtual torch::nn::Module& module() = 0;
  // For optimizers: each parameter once.
  virtual std::vector<at::Tensor> parameters() const = 0;
  // While the result lives, backward adds to the gradients and communicates nothing. All ranks hold
  // it for the same backwards.
  [[nodiscard]] virtual std::shared_ptr<void> NoSync() = 0;
  // Scales the gradients so that their norm is at most `max_norm` (infinity: leaves them), and
  // returns what it was, the same on all ranks. Collective where gradients are sharded.
  virtual double ClipGradNorm(double max_norm);
};

// All names that CreateDistributedModel knows.
std::vector<std::string> StrategyNames();

// InvalidArgument, listing the names, unless `strategy` is one; and for "none" with several ranks,
// which would train a model each.
absl::Status CheckStrategy(std::string_view strategy, int num_ranks);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_MODEL_STRATEGY_H_
