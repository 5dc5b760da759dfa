// The fused optimizers on an FSDPWrapper's slices, against LibTorch's on one rank.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "medfusion/optim/optim.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;

constexpr int kBatch = 12;
constexpr int kSteps = 6;

// 2 and 3 element biases: some ranks hold nothing of them.
torch::nn::Sequential MakeNet() {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(7, 3), torch::nn::Tanh(), torch::nn::Linear(3, 5),
                            torch::nn::Tanh(), torch::nn::Linear(5, 2));
  net->to(torch::kDouble);
  return net;
}

at::Tensor Inputs(int step) {
  torch::manual_seed(50 + step);
  return torch::randn({kBatch, 7}, torch::kDouble);
}

// What one rank and LibTorch's optimizer make of the joined batches.
template <typename Reference, typename Options>
std::vector<at::Tensor> Expected(const Options& options) {
  torch::nn::Sequential net = MakeNet();
  Reference optimizer(net->parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    net->forward(Inputs(step)).square().mean().backward();
    optimizer.step();
  }
  return net->parameters();
}

template <typename Fused, typename Options>
void ExpectParity(int ranks, const Options& options, const std::vector<at::Tensor>& expected) {
  // Made here: the ranks' threads share the generator.
  std::vector<torch::nn::Sequential> nets;
  for (int rank = 0; rank < ranks; ++rank) nets.push_back(MakeNet());
  std::vector<at::Tensor> inputs;
  for (int step = 0; step < kSteps; ++step) inputs.push_back(Inputs(step));
  RunRanks(ranks, [&](ProcessGroup& group) {
    torch::nn::Sequential net = nets[group.rank()];
    FSDPOptions fsdp;
    fsdp.min_num_params = 0;
    FSDPWrapper model(net, fsdp);
    Fused optimizer(model.parameters(), options);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps / 2) {
        // Goes on from a saved state, empty slices included.
        std::stringstream file;
        torch::save(optimizer, file);
        Fused loaded(model.parameters(), options);
        torch::load(loaded, file);
        optimizer.state().clear();
        std::stringstream again;
        torch::save(loaded, again);
        torch::load(optimizer, again);
      }
      optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
      const at::Tensor own = inputs[step].chunk(ranks)[group.rank()];
      model.forward(own).square().mean().backward();
      optimizer.step();
    }
    FullParameters whole(model, /*writeback=*/false);
    const auto parameters = net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(parameters[i], expected[i], 1e-12, 1e-12)) << "parameter " << i;
    }
  });
}

TEST(ShardedOptimizersTest, FusedAdamWOnShardsEqualsAdamWOnOneRank) {
  const auto options = AdamWOptions(0.02).weight_decay(0.1).amsgrad(true);
  const auto expected = Expected<torch::optim::AdamW>(options);
  for (const int ranks : {1, 3}) ExpectParity<FusedAdamW>(ranks, options, expected);
}

TEST(ShardedOptimizersTest, FusedSgdOnShardsEqualsSgdOnOneRank) {
  const auto options = SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01);
  ExpectParity<FusedSGD>(3, options, Expected<torch::optim::SGD>(options));
}

}  // namespace
}  // namespace medfusion::testing
