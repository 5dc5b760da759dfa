#include "medfusion/ddp/ddp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// The gradients that one rank has after backward on all ranks' rows, averaged.
template <typename M, typename Loss>
std::vector<at::Tensor> AverageAlone(int world, M& module, Loss&& loss) {
  module.zero_grad();
  for (int r = 0; r < world; ++r) (loss(module, r) / world).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : module.parameters()) gradients.push_back(p.grad());
  return gradients;
}

TEST(DdpWrapperTest, WrapsHoldersAndKeepsNames) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Linear linear(3, 2);
    DDPWrapper model(linear);
    static_assert(std::is_same_v<decltype(model), DDPWrapper<torch::nn::Linear>>);
    EXPECT_EQ(model->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
    EXPECT_EQ(model->forward(torch::ones({5, 3})).sizes(), (std::vector<int64_t>{5, 2}));
    EXPECT_TRUE(model->module().ptr() == linear.ptr());
  });
}

TEST(DdpWrapperTest, TrainAndEvalReachTheModule) {
  RunRanks(1, [](ProcessGroup&) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Dropout(0.5));
    DDPWrapper model(net);
    model->eval();
    EXPECT_FALSE(net->is_training());
    model->train();
    EXPECT_TRUE(net->is_training());
  });
}

struct Everything {
  at::Tensor value;
  std::string text;
};

class ManyResults : public torch::nn::Module {
 public:
  ManyResults() { layer_ = register_module("layer", torch::nn::Linear(3, 2)); }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x,
                                                          std::unique_ptr<int> count) {
    return {layer_->forward(x), std::vector<at::Tensor>(*count, x)};
  }

 private:
  torch::nn::Linear layer_{nullptr};
};

class StructResult : public torch::nn::Module {
 public:
  StructResult() { layer_ = register_module("layer", torch::nn::Linear(3, 2)); }
  Everything forward(const at::Tensor& x) { return {layer_->forward(x), "note"}; }

 private:
  torch::nn::Linear layer_{nullptr};
};

TEST(DdpWrapperTest, ForwardTakesAndReturnsWhateverTheModuleDoes) {
  RunRanks(2, [](ProcessGroup&) {
    DDPWrapper many(std::make_shared<ManyResults>());
    auto [out, copies] = many->forward(torch::ones({1, 3}), std::make_unique<int>(3));
    EXPECT_EQ(copies.size(), 3u);
    out.sum().backward();

    DDPOptions options;
    options.find_unused_parameters = true;  // the struct's tensors are unknown to it
    DDPWrapper odd(std::make_shared<StructResult>(), options);
    Everything result = odd->forward(torch::ones({1, 3}));
    EXPECT_EQ(result.text, "note");
    result.value.sum().backward();
    for (const auto& p : odd->parameters()) EXPECT_TRUE(p.grad().defined());
  });
}

TEST(DdpWrapperTest, ParametersAndBuffersBecomeRankZeros) {
  RunRanks(3, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(4);
    {
      torch::NoGradGuard no_grad;
      norm->weight.fill_(group.rank() + 1);
      norm->running_mean.fill_(group.rank() + 10);
      norm->num_batches_tracked.fill_(group.rank() + 100);
    }
    DDPWrapper model(norm);
    EXPECT_TRUE(norm->weight.eq(1).all().item<bool>());
    EXPECT_TRUE(norm->running_mean.eq(10).all().item<bool>());
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 100);
  });
}

TEST(DdpWrapperTest, BuffersAreRankZerosInEveryTrainingForwardOnly) {
  RunRanks(2, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(4);
    DDPWrapper model(norm);
    const auto diverge = [&] { norm->running_mean.fill_(group.rank() + 10); };
    const at::Tensor x = torch::zeros({2, 4});
    diverge();
    model->forward(x);
    EXPECT_TRUE(norm->running_mean.eq(9).all().item<bool>());  // 10 and a step of 0.1 towards 0
    diverge();
    {
      const auto unsynced = model->no_sync();
      model->forward(x);
    }
    EXPECT_NEAR(norm->running_mean[0].item<double>(), 0.9 * (group.rank() + 10), 1e-5);
    diverge();
    model->eval();
    model->forward(x);
    EXPECT_EQ(norm->running_mean[0].item<double>(), group.rank() + 10);
  });
}

TEST(DdpWrapperTest, BroadcastOfBuffersDoesNotSpoilAPendingBackward) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
    DDPWrapper model(net);
    const at::Tensor first = model->forward(torch::rand({4, 3}));
    const at::Tensor second = model->forward(torch::rand({4, 3}));
    (first + second).square().sum().backward();
  });
}

TEST(DdpWrapperTest, DifferentShapesAreNamedOnAllRanks) {
  const auto errors = RunRanksThatMayFail(3, [](ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(3, group.rank() == 1 ? 5 : 4));
    DDPWrapper model(net);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 has parameter 0.weight: Float [4, 3]"),
                                 HasSubstr("rank 1 has parameter 0.weight: Float [5, 3]"),
                                 HasSubstr("rank 2 has parameter 0.weight: Float [4, 3]"))));
}

TEST(DdpWrapperTest, DifferentDtypesNumbersAndOptionsAreNamedOnAllRanks) {
  EXPECT_THAT(RunRanksThatMayFail(2,
                                  [](ProcessGroup& group) {
                                    torch::nn::Linear net(3, 2);
                                    if (group.rank() == 1) net->to(at::kDouble);
                                    DDPWrapper model(net);
                                  }),
              Each(AllOf(HasSubstr("weight: Float [2, 3]"), HasSubstr("weight: Double [2, 3]"))));
  EXPECT_THAT(RunRanksThatMayFail(2,
                                  [](ProcessGroup& group) {
                                    torch::nn::Sequential net(torch::nn::Linear(3, 2));
                                    if (group.rank() == 1) net->push_back(torch::nn::Linear(2, 2));
                                    DDPWrapper model(net);
                                  }),
              Each(AllOf(HasSubstr("rank 0 has nothing more"), HasSubstr("1.weight"))));
  EXPECT_THAT(RunRanksThatMayFail(2,
                                  [](ProcessGroup& group) {
                                    DDPOptions options;
                                    options.find_unused_parameters = group.rank() == 1;
                                    DDPWrapper model(torch::nn::Linear(3, 2), options);
                                  }),
              Each(HasSubstr("find_unused_parameters=1")));
}

TEST(DdpWrapperTest, NothingToTrainOnOneRankIsAnErrorOnAll) {
  EXPECT_THAT(RunRanksThatMayFail(2,
                                  [](ProcessGroup& group) {
                                    torch::nn::Linear net(3, 2);
                                    if (group.rank() == 1) {
                                      for (auto& p : net->parameters()) p.set_requires_grad(false);
                                    }
                                    DDPWrapper model(net);
                                  }),
              Each(AllOf(HasSubstr("rank 1"), HasSubstr("requires grad"))));
}

TEST(DdpWrapperTest, NeedsAGroup) {
  EXPECT_THROW(DDPWrapper<torch::nn::Linear>(torch::nn::Linear(1, 1)), std::invalid_argument);
}

TEST(DdpWrapperTest, AModuleIsWrappedOnceAtATimeAndTrainsAloneAfterwards) {
  RunRanks(2, [](ProcessGroup& group) {
    torch::nn::Linear net(3, 1);
    {
      DDPWrapper model(net);
      model->forward(torch::ones({1, 3})).sum().backward();
      EXPECT_THROW(DDPWrapper<torch::nn::Linear>{net}, std::invalid_argument);
    }
    EXPECT_TRUE(net->weight.grad().eq(1).all().item<bool>());  // survives the wrapper
    net->zero_grad();
    if (group.rank() == 0) net->forward(torch::ones({1, 3})).sum().backward();
    DDPWrapper again(net);
    net->zero_grad();
    again->forward(torch::ones({1, 3})).sum().backward();
  });
}

TEST(DdpWrapperTest, FrozenParametersAreLeftAlone) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    net->left->weight.set_requires_grad(false);
    DDPWrapper model(net);
    model->forward(InputOf(group.rank()), true, true).sum().backward();
    EXPECT_FALSE(net->left->weight.grad().defined());
    EXPECT_TRUE(net->right->weight.grad().defined());
  });
}

TEST(DdpWrapperTest, DtypesAreReducedSeparately) {
  RunRanks(2, [](ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 1));
    net[1]->to(at::kDouble);
    DDPWrapper model(net);
    const at::Tensor x = torch::full({1, 3}, group.rank() + 1.0);
    auto& first = *net[0]->as<torch::nn::Linear>();
    auto& second = *net[1]->as<torch::nn::Linear>();
    second.forward(first.forward(x).to(at::kDouble)).sum().backward();
    // d/dbias is second.weight on every rank; d/dbias of the second is 1.
    EXPECT_TRUE(torch::allclose(first.bias.grad(), second.weight[0].to(at::kFloat)));
    EXPECT_TRUE(second.bias.grad().eq(1).all().item<bool>());
  });
}

TEST(DdpWrapperTest, SharedParametersAreListedOnce) {
  RunRanks(1, [](ProcessGroup&) {
    torch::nn::Linear shared(3, 3);
    torch::nn::Sequential net(shared, shared);
    ASSERT_EQ(net->parameters().size(), 4u);  // as LibTorch counts
    EXPECT_EQ(DDPWrapper(net)->parameters().size(), 2u);
  });
}

TEST(DdpWrapperTest, GradientsStayInPlaceThroughZeroGradInBothModes) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    FillParameters(*net);
    DDPWrapper model(net);
    torch::optim::SGD one(model->parameters(), 0.0);
    torch::optim::Adam two(model->parameters());
    const auto step = [&] {
      model->forward(InputOf(group.rank()), true, true).square().sum().backward();
    };
    step();
    step();  // the first rebuilds the buckets
    const void* place = net->left->weight.grad().data_ptr();
    const at::Tensor doubled = net->left->weight.grad().clone();
    for (bool set_to_none : {true, false, true}) {
      one.zero_grad(set_to_none);
      two.zero_grad(set_to_none);
      step();
      EXPECT_EQ(net->left->weight.grad().data_ptr(), place);
      EXPECT_TRUE(Close(net->left->weight.grad() * 2, doubled));
      EXPECT_FALSE(net->left->weight.grad().is_view());
    }
  });
}

TEST(DdpWrapperTest, NoSyncThenOneSyncedBackwardAveragesTheSum) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    auto reference = DoubleModule<TwoBranches>();
    FillParameters(*net);
    FillParameters(*reference);
    const auto expected = AverageAlone(2, *reference, [](TwoBranches& m, int r) {
      return m.forward(InputOf(r), true, true).square().sum() +
             m.forward(InputOf(r + 7), true, true).square().sum();
    });
    DDPWrapper model(net);
    const auto loss = [&](int input) {
      return model->forward(InputOf(input), true, true).square().sum();
    };
    const int64_t collectives = group.traffic().collectives;
    for (bool around_backward_alone : {false, true}) {
      model->zero_grad();
      at::Tensor first;
      if (around_backward_alone) first = loss(group.rank());
      {
        const auto unsynced = model->no_sync();
        const int64_t before = group.traffic().collectives;
        if (!around_backward_alone) first = loss(group.rank());
        first.backward();
        EXPECT_EQ(group.traffic().collectives, before);
      }
      loss(group.rank() + 7).backward();
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(Close(parameters[i].grad(), expected[i])) << i;
      }
    }
    EXPECT_GT(group.traffic().collectives, collectives);
  });
}

TEST(DdpWrapperTest, TwoForwardsBeforeOneBackward) {
  RunRanks(2, [](ProcessGroup& group) {
    for (bool find_unused : {false, true}) {
      auto net = DoubleModule<TwoBranches>();
      auto reference = DoubleModule<TwoBranches>();
      FillParameters(*net);
      FillParameters(*reference);
      const auto expected = AverageAlone(2, *reference, [](TwoBranches& m, int r) {
        return (m.forward(InputOf(r), true, false) * m.forward(InputOf(r + 1), false, true)).sum();
      });
      DDPOptions options;
      options.find_unused_parameters = find_unused;
      DDPWrapper model(net, options);
      const int r = group.rank();
      const at::Tensor left = model->forward(InputOf(r), true, false);
      const at::Tensor right = model->forward(InputOf(r + 1), false, true);
      (left * right).sum().backward();
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(Close(parameters[i].grad(), expected[i])) << i << " " << find_unused;
      }
    }
  });
}

TEST(DdpWrapperTest, EveryBackwardOfOneForwardIsAveraged) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    auto reference = DoubleModule<TwoBranches>();
    FillParameters(*net);
    FillParameters(*reference);
    const auto expected = AverageAlone(2, *reference, [](TwoBranches& m, int r) {
      return 2 * m.forward(InputOf(r), true, true).square().sum();
    });
    DDPWrapper model(net);
    const at::Tensor loss = model->forward(InputOf(group.rank()), true, true).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    const auto parameters = net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(Close(parameters[i].grad(), expected[i])) << i;
    }
  });
}

TEST(DdpWrapperTest, TwoLossesWithDifferentParametersMayGoBackwardOneAfterTheOther) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    FillParameters(*net);
    DDPWrapper model(net);
    const at::Tensor left = model->forward(InputOf(group.rank()), true, false).sum();
    const at::Tensor right = model->forward(InputOf(group.rank()), false, true).sum();
    left.backward();
    right.backward();
    const at::Tensor mean = (InputOf(0).sum(0) + InputOf(1).sum(0)) / 2;
    EXPECT_TRUE(Close(net->left->weight.grad()[0], mean));
    EXPECT_TRUE(Close(net->right->weight.grad()[0], mean));
  });
}

TEST(DdpWrapperTest, ForwardsWithoutBackwardAreHarmless) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net);
    model->forward(InputOf(0), true, true);
    {
      torch::NoGradGuard no_grad;
      if (group.rank() == 0)
        model->forward(InputOf(0), true, true);  // evaluation is not collective
    }
    model->forward(InputOf(group.rank()), true, true).sum().backward();
    const at::Tensor mean = (InputOf(0).sum(0) + InputOf(1).sum(0)) / 2;
    EXPECT_TRUE(Close(net->left->weight.grad()[0], mean));
  });
}

TEST(DdpWrapperTest, LowPrecisionParametersDoNotOverflowInTheSum) {
  RunRanks(4, [](ProcessGroup&) {
    torch::nn::Linear net(1, 1);
    net->to(at::kHalf);
    DDPWrapper model(net);
    (net->weight * 30000).sum().backward({}, true);
    (net->bias * 30000).sum().backward();
    EXPECT_EQ(net->weight.grad().item<float>(), 30000.0F);  // four of them exceed 65504
  });
}

}  // namespace
}  // namespace medfusion::testing
