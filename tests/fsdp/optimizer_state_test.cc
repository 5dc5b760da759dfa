// Optimizers over slices, some of which are empty: step, save, load and go on.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

std::unique_ptr<torch::optim::Optimizer> Momentum(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}
std::unique_ptr<torch::optim::Optimizer> AdamW(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
}

void Train(FSDPWrapper<Model>& model, torch::optim::Optimizer& optimizer, int rank, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model->forward(Input(rank + step)).square().mean().backward();
    optimizer.step();
  }
}

void CopyValues(FSDPWrapper<Model>& from, FSDPWrapper<Model>& to) {
  const FullParameters source(from, /*writeback=*/false), target(to);
  torch::NoGradGuard no_grad;
  for (const auto& item : from->module()->named_parameters()) {
    to->module()->named_parameters()[item.key()].copy_(item.value());
  }
}

void ExpectResumes(int world, const MakeOptimizer& make) {
  RunRanks(world, [&](ProcessGroup& group) {
    FSDPWrapper<Model> model(Seeded<Tiny>(), EveryModuleAUnit());
    int empty = 0;
    for (const at::Tensor& slice : model->parameters()) empty += slice.numel() == 0 ? 1 : 0;
    if (world > 1) EXPECT_GT(empty, 0);
    const auto optimizer = make(model->parameters());
    Train(model, *optimizer, group.rank(), 2);
    std::stringstream file;
    torch::save(*optimizer, file);

    FSDPWrapper<Model> resumed(Seeded<Tiny>(), EveryModuleAUnit());
    CopyValues(model, resumed);
    const auto loaded = make(resumed->parameters());
    torch::load(*loaded, file);
    Train(model, *optimizer, group.rank(), 3);
    Train(resumed, *loaded, group.rank(), 3);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(model->parameters()[i], resumed->parameters()[i])) << i;
    }
  });
}

class FsdpOptimizerStateTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpOptimizerStateTest, ::testing::Values(1, 2, 3, 4));

TEST_P(FsdpOptimizerStateTest, MomentumOfEmptySlicesIsSavedAndLoaded) {
  ExpectResumes(GetParam(), Momentum);
}

TEST_P(FsdpOptimizerStateTest, AdamWsStateOfEmptySlicesIsSavedAndLoaded) {
  ExpectResumes(GetParam(), AdamW);
}

}  // namespace
}  // namespace medfusion::testing
