#include "medfusion/train/model_strategy.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <torch/nn/utils/clip_grad.h>

#include <algorithm>

namespace medfusion {

double ModelStrategy::ClipGradNorm(double max_norm) {
  return torch::nn::utils::clip_grad_norm_(parameters(), max_norm);
}

std::vector<std::string> StrategyNames() { return {"none", "ddp"}; }

absl::Status CheckStrategy(std::string_view strategy, int num_ranks) {
  const std::vector<std::string> names = StrategyNames();
  if (std::find(names.begin(), names.end(), strategy) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("strategy=", std::string(strategy),
                                                   " is unknown; expected one of ",
                                                   absl::StrJoin(names, ", ")));
  }
  if (strategy == "none" && num_ranks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy=none trains on one rank, but there are ", num_ranks, "; choose ddp"));
  }
  return absl::OkStatus();
}

}  // namespace medfusion
