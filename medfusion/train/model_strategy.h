// What training needs of a model that is spread over ranks, whatever its forward looks like.
#ifndef MEDFUSION_TRAIN_MODEL_STRATEGY_H_
#define MEDFUSION_TRAIN_MODEL_STRATEGY_H_

#include <ATen/core/Tensor.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "medfusion/fsdp/options.h"
#include "medfusion/fsdp/sharded_model.h"
#include "medfusion/train/precision.h"

namespace medfusion {

// How ranks share the work. The same on all ranks.
struct StrategyOptions {
  // "none": one rank alone; "ddp": each rank holds the whole model (DDPWrapper); "fsdp": each holds
  // a part of it (FSDPWrapper).
  std::string name = "ddp";
  // Of fsdp alone; the others do not look at them. See FSDPOptions.
  ShardingStrategy sharding_strategy = ShardingStrategy::FULL_SHARD;
  int64_t min_num_params = 1'000'000;
  // Of all three: fsdp by FSDPOptions::mixed_precision, the others by autocast. Outputs of forward
  // that are tensors are float32.
  Precision mixed_precision = Precision::kNone;

  // For people: "ddp", "fsdp FULL_SHARD in bf16".
  std::string Describe() const;
  // Names and values of all that must be the same on every rank.
  std::vector<std::pair<std::string, std::string>> Settings() const;
};

// "FULL_SHARD" etc.; InvalidArgument, listing the names, otherwise.
absl::StatusOr<ShardingStrategy> ParseShardingStrategy(std::string_view text);

// One strategy's hold on one model. Used by one thread.
class ModelStrategy {
 public:
  virtual ~ModelStrategy() = default;

  // "none", "ddp", "fsdp".
  virtual std::string_view name() const = 0;
  // The model itself; its parameters have the names of a checkpoint. With fsdp their values can be
  // used inside of WholeParameters() only.
  virtual torch::nn::Module& module() = 0;
  // For optimizers: each parameter once, or this rank's part of it, possibly empty.
  virtual std::vector<at::Tensor> parameters() const = 0;
  // Which part of each parameter of parameters() is here.
  virtual std::vector<ShardedTensor> DescribeState() const = 0;
  // While the result lives, module()'s parameters are whole; with `writeback` they may be changed,
  // alike on all ranks. Both ends are collective where parameters are sharded.
  [[nodiscard]] virtual std::shared_ptr<void> WholeParameters(bool writeback) = 0;
  // While the result lives, backward adds to the gradients and communicates nothing. All ranks hold
  // it for the same backwards.
  [[nodiscard]] virtual std::shared_ptr<void> NoSync() = 0;
  // Gradients of backwards under NoSync() will not be used.
  virtual void ForgetGradients() {}
  // Whether forward waits for other ranks: then none may leave before it.
  virtual bool collective_forward() const { return false; }
  // Whether gradients underflow unless the loss is scaled (fp16).
  virtual bool needs_loss_scaling() const { return false; }
  // Scales the gradients so that their norm is at most `max_norm` (infinity: leaves them), and
  // returns what it was, the same on all ranks. They stay untouched when it is not finite.
  // Collective where gradients are sharded.
  virtual double ClipGradNorm(double max_norm);
};

// All names that CreateDistributedModel knows.
std::vector<std::string> StrategyNames();

// InvalidArgument, listing the names, unless `strategy` has one of them; and for "none" with
// several ranks, which would train a model each.
absl::Status CheckStrategy(const StrategyOptions& strategy, int num_ranks);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_MODEL_STRATEGY_H_
