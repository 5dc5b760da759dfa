#include "medfusion/ddp/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "medfusion/ddp/ddp_wrapper.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Steps that each rank has data for.
const std::vector<int> kSteps = {1, 4, 0};

at::Tensor LossOf(TwoBranches& net, int rank, int step) {
  return net.forward(InputOf(rank + 10 * step), true, true).square().mean();
}

// What all ranks should end with: SGD with momentum on the sums over the ranks that still have
// data.
std::vector<at::Tensor> TrainedAlone(bool divide_by_initial) {
  auto net = DoubleModule<TwoBranches>();
  FillParameters(*net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    int active = 0;
    for (int steps : kSteps) active += step < steps ? 1 : 0;
    const double divisor = divide_by_initial ? static_cast<double>(kSteps.size()) : active;
    for (size_t r = 0; r < kSteps.size(); ++r) {
      if (step < kSteps[r]) (LossOf(*net, static_cast<int>(r), step) / divisor).backward();
    }
    optimizer.step();
  }
  return net->parameters();
}

void ExpectTrainedLike(const std::vector<at::Tensor>& expected, torch::nn::Module& module) {
  const auto parameters = module.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(Close(parameters[i], expected[i])) << "parameter " << i;
  }
}

struct Variant {
  bool divide_by_initial = true;
  bool step_callback = true;
  bool find_unused = false;
  bool set_to_none = true;
};

class JoinTest : public ::testing::TestWithParam<Variant> {};

TEST_P(JoinTest, RanksEndEqualAndAsIfAloneHoweverUnevenTheData) {
  const Variant variant = GetParam();
  const auto expected = TrainedAlone(variant.divide_by_initial);
  RunRanks(3, [&](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    FillParameters(*net);
    DDPOptions options;
    options.buckets = {1, 32};
    options.find_unused_parameters = variant.find_unused;
    DDPWrapper model(net, options);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    JoinOptions join_options;
    join_options.divide_by_initial_world_size = variant.divide_by_initial;
    Join join(model, join_options);
    for (int step = 0; step < kSteps[group.rank()]; ++step) {
      optimizer.zero_grad(variant.set_to_none);
      const at::Tensor x = InputOf(group.rank() + 10 * step);
      model->forward(x, true, true).square().mean().backward();
      optimizer.step();
    }
    if (variant.step_callback) {
      optimizer.zero_grad(variant.set_to_none);
      join.Finish([&] {
        optimizer.step();
        optimizer.zero_grad(variant.set_to_none);
      });
      // The momentum too is what it would be on one rank.
      const auto* state = static_cast<torch::optim::SGDParamState*>(
          optimizer.state().at(net->left->weight.unsafeGetTensorImpl()).get());
      at::Tensor momentum = state->momentum_buffer().clone();
      group.AllReduce(momentum, ReduceOp::kAverage)->Wait();
      EXPECT_TRUE(Close(momentum, state->momentum_buffer()));
    } else {
      join.Finish();
    }
    ExpectTrainedLike(expected, *net);
  });
}

INSTANTIATE_TEST_SUITE_P(Variants, JoinTest,
                         ::testing::Values(Variant{}, Variant{false}, Variant{true, false},
                                           Variant{true, true, true},
                                           Variant{true, true, false, false},
                                           Variant{false, false, true, false}));

TEST(JoinTest, TrainingGoesOnAfterAJoin) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net);
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(model);
      if (group.rank() == epoch) {
        model->zero_grad();
        model->forward(InputOf(0), true, true).sum().backward();
      }
      join.Finish();
    }
    model->zero_grad();
    model->forward(InputOf(group.rank()), true, true).sum().backward();
    EXPECT_TRUE(Close(net->left->weight.grad()[0], (InputOf(0) + InputOf(1)).sum(0) / 2));
  });
}

TEST(JoinTest, ARankThatJoinsInMidAccumulationStillContributes) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net);
    Join join(model);
    {
      const auto unsynced = model->no_sync();
      model->forward(InputOf(group.rank()), true, true).sum().backward();
    }
    if (group.rank() == 1) {
      model->forward(InputOf(2), true, true).sum().backward();
      const at::Tensor sum = (InputOf(0) + InputOf(1) + InputOf(2)).sum(0);
      EXPECT_TRUE(Close(net->left->weight.grad()[0], sum / 2));
    }
    join.Finish();
  });
}

TEST(JoinTest, AGradientThatNoRankUsedStaysToTheLastBitOnShadowingRanksToo) {
  RunRanks(3, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    FillParameters(*net);
    DDPOptions options;
    options.find_unused_parameters = true;
    DDPWrapper model(net, options);
    model->forward(InputOf(group.rank()), true, true).square().sum().backward();
    const at::Tensor old = net->left->weight.grad().clone();
    Join join(model);
    if (group.rank() == 2) {
      net->right->zero_grad();
      model->forward(InputOf(2), false, true).square().sum().backward();
      EXPECT_TRUE(at::equal(net->left->weight.grad(), old));
    }
    net->right->zero_grad();
    join.Finish([&] { EXPECT_TRUE(at::equal(net->left->weight.grad(), old)); });
  });
}

TEST(JoinTest, BuffersComeFromARankThatStillHasData) {
  RunRanks(2, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(1);
    DDPWrapper model(norm);
    Join join(model);
    const int steps = group.rank() == 0 ? 0 : 3;
    for (int step = 0; step < steps; ++step) {
      model->forward(torch::tensor({{1.0}, {3.0}}).to(at::kFloat)).sum().backward();
    }
    join.Finish();
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
    EXPECT_NEAR(norm->running_mean.item<double>(), 2 * (1 - 0.9 * 0.9 * 0.9), 1e-6);
  });
}

TEST(JoinTest, ThrowsOnAllRanksAtTheFirstRankWithoutDataWhenAsked) {
  const auto errors = RunRanksThatMayFail(3, [](ProcessGroup& group) {
    DDPWrapper model(DoubleModule<TwoBranches>());
    JoinOptions options;
    options.throw_on_early_termination = true;
    Join join(model, options);
    for (int step = 0; step < (group.rank() == 1 ? 1 : 3); ++step) {
      model->forward(InputOf(0), true, true).sum().backward();
    }
    join.Finish();
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more data on rank 1,")));
}

TEST(JoinTest, EqualDataIsNoEarlyTermination) {
  RunRanks(2, [](ProcessGroup&) {
    DDPWrapper model(DoubleModule<TwoBranches>());
    JoinOptions options;
    options.throw_on_early_termination = true;
    Join join(model, options);
    model->forward(InputOf(0), true, true).sum().backward();
    join.Finish();
  });
}

TEST(JoinTest, IsRefusedWhereItCannotWork) {
  RunRanks(2, [](ProcessGroup&) {
    DDPOptions options;
    options.sync_batch_norm = true;
    DDPWrapper synced(torch::nn::BatchNorm1d(2), options);
    EXPECT_THROW(Join{synced}, std::invalid_argument);
    DDPWrapper model(torch::nn::Linear(2, 2));
    Join outer(model);
    EXPECT_THROW(Join{model}, std::logic_error);
  });
}

}  // namespace
}  // namespace medfusion::testing
