#include "medfusion/train/model_strategy.h"

#include <ATen/core/grad_mode.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>

namespace medfusion {

double ModelStrategy::ClipGradNorm(double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  double sum = 0;
  for (const at::Tensor& parameter : parameters()) {
    if (!parameter.grad().defined()) continue;
    gradients.push_back(parameter.grad());
    const double norm = gradients.back().norm(2, at::kDouble).item<double>();
    sum += norm * norm;
  }
  const double norm = std::sqrt(sum);
  // Without the 1e-6 of LibTorch's clip_grad_norm_, so that it is what FSDPWrapper does.
  if (!std::isfinite(norm) || norm <= max_norm) return norm;
  for (at::Tensor& gradient : gradients) gradient.mul_(max_norm / norm);
  return norm;
}

std::string StrategyOptions::Describe() const {
  std::string text = name;
  if (name == "fsdp") absl::StrAppend(&text, " ", ShardingStrategyName(sharding_strategy));
  if (mixed_precision != Precision::kNone) {
    absl::StrAppend(&text, " in ", PrecisionName(mixed_precision));
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> StrategyOptions::Settings() const {
  return {{"strategy", name},
          {"sharding_strategy", ShardingStrategyName(sharding_strategy)},
          {"min_num_params", absl::StrCat(min_num_params)},
          {"mixed_precision", PrecisionName(mixed_precision)}};
}

absl::StatusOr<ShardingStrategy> ParseShardingStrategy(std::string_view text) {
  std::vector<std::string> names;
  for (const ShardingStrategy strategy :
       {ShardingStrategy::FULL_SHARD, ShardingStrategy::SHARD_GRAD_OP, ShardingStrategy::NO_SHARD,
        ShardingStrategy::HYBRID_SHARD}) {
    if (text == ShardingStrategyName(strategy)) return strategy;
    names.push_back(ShardingStrategyName(strategy));
  }
  return absl::InvalidArgumentError(absl::StrCat("sharding_strategy=", std::string(text),
                                                 " is unknown; expected one of ",
                                                 absl::StrJoin(names, ", ")));
}

std::vector<std::string> StrategyNames() { return {"none", "ddp", "fsdp"}; }

absl::Status CheckStrategy(const StrategyOptions& strategy, int num_ranks) {
  const std::vector<std::string> names = StrategyNames();
  if (std::find(names.begin(), names.end(), strategy.name) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy=", strategy.name, " is unknown; expected one of ", absl::StrJoin(names, ", ")));
  }
  if (strategy.name == "none" && num_ranks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy=none trains on one rank, but there are ", num_ranks, "; choose ddp or fsdp"));
  }
  if (strategy.min_num_params < 0) {
    return absl::InvalidArgumentError(absl::StrCat("min_num_params=", strategy.min_num_params,
                                                   " is out of range; expected 0 or more"));
  }
  return absl::OkStatus();
}

}  // namespace medfusion
