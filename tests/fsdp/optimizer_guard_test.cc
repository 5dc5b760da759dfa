// LBFGS sees slices only, and is refused; where parameters are whole it is right, and works.
#include "medfusion/fsdp/optimizer_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor Input() { return torch::arange(4 * kFeatures, at::kDouble).view({4, kFeatures}).sin(); }

template <typename Forward>
void StepLbfgs(torch::optim::LBFGS& optimizer, Forward&& forward) {
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = forward(Input()).square().mean();
    loss.backward();
    return loss;
  });
}

template <typename Call>
std::string RefusalOf(Call&& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

TEST(OptimizerGuardTest, LbfgsOverSlicesIsRefusedByNameAndTheWrapperGoesOn) {
  RunRanks(2, [](ProcessGroup&) {
    FSDPWrapper<Model> model(Seeded<Mlp>());
    torch::optim::LBFGS lbfgs(model->parameters());
    const auto forward = [&](const at::Tensor& x) { return model->forward(x); };
    EXPECT_THAT(RefusalOf([&] { StepLbfgs(lbfgs, forward); }),
                AllOf(HasSubstr("LBFGS"), HasSubstr("slices"), HasSubstr("NO_SHARD")));
    torch::optim::SGD sgd(model->parameters(), 0.01);
    const double before = forward(Input()).square().mean().item<double>();
    for (int step = 0; step < 5; ++step) {
      sgd.zero_grad();
      forward(Input()).square().mean().backward();
      sgd.step();
    }
    EXPECT_LT(forward(Input()).square().mean().item<double>(), before);
  });
}

TEST(OptimizerGuardTest, LbfgsThatComesLateIsRefusedWithinThreeSteps) {
  RunRanks(2, [](ProcessGroup&) {
    FSDPWrapper<Model> model(Seeded<Mlp>());
    const auto forward = [&](const at::Tensor& x) { return model->forward(x); };
    torch::optim::SGD sgd(model->parameters(), 0.01);
    for (int step = 0; step < 20; ++step) {
      sgd.zero_grad();
      forward(Input()).square().mean().backward();
      sgd.step();
    }
    // No tolerance ends a step before its 25 evaluations.
    torch::optim::LBFGS lbfgs(
        model->parameters(),
        torch::optim::LBFGSOptions(1e-3).tolerance_grad(0).tolerance_change(0));
    EXPECT_THAT(RefusalOf([&] {
                  for (int step = 0; step < 4; ++step) StepLbfgs(lbfgs, forward);
                }),
                HasSubstr("LBFGS"));
  });
}

TEST(OptimizerGuardTest, LbfgsOverWholeParametersEqualsOneRankAlone) {
  const auto alone = Seeded<Mlp>();
  torch::optim::LBFGS reference(alone->parameters());
  StepLbfgs(reference, [&](const at::Tensor& x) { return alone->forward(x); });
  for (const int world : {1, 2}) {
    RunRanks(world, [&](ProcessGroup&) {
      FSDPOptions options;
      if (world > 1) options.sharding_strategy = ShardingStrategy::NO_SHARD;
      FSDPWrapper<Model> model(Seeded<Mlp>(), options);
      torch::optim::LBFGS lbfgs(model->parameters());
      StepLbfgs(lbfgs, [&](const at::Tensor& x) { return model->forward(x); });
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        EXPECT_TRUE(at::allclose(model->parameters()[i], alone->parameters()[i], 1e-9, 1e-9)) << i;
      }
    });
  }
}

TEST(OptimizerGuardTest, TellsByTypeWhereAnOptimizerIsAtHand) {
  const std::vector<at::Tensor> parameters = {torch::ones({2}).requires_grad_()};
  EXPECT_THAT(RefusalOf([&] { RequireElementwise(torch::optim::LBFGS(parameters)); }),
              HasSubstr("torch::optim::LBFGS"));
  RequireElementwise(torch::optim::SGD(parameters, 0.1));
  RequireElementwise(torch::optim::AdamW(parameters));
}

TEST(OptimizerGuardTest, TheWatchIsQuietOutsideOfLbfgs) {
  LbfgsWatch watch;
  for (int i = 0; i < 200; ++i) watch.OnForward();
}

}  // namespace
}  // namespace medfusion::testing
