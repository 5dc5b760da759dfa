#include "medfusion/ddp/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "medfusion/distributed/setup.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<ReducerParameter> Named(const std::vector<at::Tensor>& tensors) {
  std::vector<ReducerParameter> named;
  for (const at::Tensor& tensor : tensors) {
    named.push_back({"p" + std::to_string(named.size()), tensor});
  }
  return named;
}

std::vector<at::Tensor> ThreeParameters() {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(torch::full({4}, i + 1.0, torch::dtype(at::kDouble).requires_grad(true)));
  }
  return tensors;
}

// A chain whose backward reaches the parameters in the given order.
at::Tensor Chain(const std::vector<at::Tensor>& tensors, std::vector<int> order, double input) {
  at::Tensor x = torch::full({4}, input, at::kDouble);
  for (auto i = order.rbegin(); i != order.rend(); ++i) x = (x * tensors[*i]).sin();
  return x.sum();
}

TEST(ReducerTest, BucketsAreRebuiltInRankZerosOrderOfArrivalOnAllRanks) {
  std::vector<std::vector<std::vector<int>>> plans(3);
  RunRanks(3, [&](ProcessGroup& group) {
    const auto tensors = ThreeParameters();
    Reducer reducer(DefaultGroup(), Named(tensors), {{1, 1}, false, nullptr});
    EXPECT_THAT(reducer.plan(), ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
    const std::vector<std::vector<int>> orders = {{1, 0, 2}, {2, 1, 0}, {0, 2, 1}};
    Chain(tensors, orders[group.rank()], 1.0 + group.rank()).backward();
    plans[group.rank()] = reducer.plan();
  });
  EXPECT_THAT(plans, Each(ElementsAre(ElementsAre(1), ElementsAre(0), ElementsAre(2))));
}

TEST(ReducerTest, GradientsSurviveTheRebuildAndAreRightAfterIt) {
  RunRanks(2, [](ProcessGroup& group) {
    const auto tensors = ThreeParameters();
    const auto alone = ThreeParameters();
    const std::vector<int> order = {1, 0, 2};
    for (int r = 0; r < 2; ++r) (Chain(alone, order, 1.0 + r) / 2).backward();
    Reducer reducer(DefaultGroup(), Named(tensors), {{1, 64}, false, nullptr});
    Chain(tensors, order, 1.0 + group.rank()).backward();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Close(tensors[i].grad(), alone[i].grad())) << i;
    // Not zeroed: the second average comes on top of the first.
    Chain(tensors, order, 1.0 + group.rank()).backward();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Close(tensors[i].grad(), 2 * alone[i].grad())) << i;
  });
}

TEST(ReducerTest, BucketsAreSentInTheAgreedOrderWhateverArrivesFirst) {
  std::vector<std::vector<int>> sent(2);
  RunRanks(2, [&](ProcessGroup& group) {
    const auto tensors = ThreeParameters();
    const auto alone = ThreeParameters();
    const std::vector<std::vector<int>> orders = {{2, 1, 0}, {0, 1, 2}};
    for (int r = 0; r < 2; ++r) (Chain(alone, orders[r], 1.0) / 2).backward();
    ReducerOptions options{{1, 1}, false, nullptr};
    options.comm_hook = [&](ProcessGroup& g, GradBucket& bucket) {
      sent[g.rank()].push_back(bucket.index);
      return g.AllReduce(bucket.buffer, ReduceOp::kAverage);
    };
    Reducer reducer(DefaultGroup(), Named(tensors), options);
    for (int step = 0; step < 2; ++step) {
      for (const auto& t : tensors) t.mutable_grad().reset();
      Chain(tensors, orders[group.rank()], 1.0).backward();
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(Close(tensors[i].grad(), alone[i].grad())) << i;
    }
  });
  EXPECT_THAT(sent, Each(ElementsAre(0, 1, 2, 0, 1, 2)));
}

TEST(ReducerTest, SendsTheFirstBucketWhileBackwardIsStillAtOtherParameters) {
  RunRanks(2, [](ProcessGroup&) {
    const auto tensors = ThreeParameters();
    std::vector<int> missing_when_sent;
    ReducerOptions options{{1, 1}, false, nullptr};
    options.comm_hook = [&](ProcessGroup& g, GradBucket& bucket) {
      int missing = 0;
      for (const auto& t : tensors) missing += t.grad().defined() ? 0 : 1;
      missing_when_sent.push_back(missing);
      return g.AllReduce(bucket.buffer, ReduceOp::kAverage);
    };
    Reducer reducer(DefaultGroup(), Named(tensors), options);
    Chain(tensors, {2, 1, 0}, 1.0).backward();
    EXPECT_THAT(missing_when_sent, ElementsAre(2, 1, 0));
  });
}

TEST(ReducerTest, KeepsStridesOfParametersAndTakesEmptyOnes) {
  RunRanks(2, [](ProcessGroup& group) {
    const at::Tensor turned =
        torch::zeros({3, 5}, at::kDouble).t().detach().requires_grad_();  // strides 1, 5
    const at::Tensor last = torch::zeros({2, 3, 4, 5}, at::kDouble)
                                .contiguous(at::MemoryFormat::ChannelsLast)
                                .requires_grad_();
    const at::Tensor scalar = torch::zeros({}, torch::dtype(at::kDouble).requires_grad(true));
    const at::Tensor empty = torch::zeros({0, 3}, torch::dtype(at::kDouble).requires_grad(true));
    const std::vector<at::Tensor> all = {turned, last, scalar, empty};
    Reducer reducer(DefaultGroup(), Named(all), {});
    for (int step = 0; step < 2; ++step) {
      at::Tensor sum = torch::zeros({}, at::kDouble);
      for (const auto& t : all) {
        t.mutable_grad().reset();
        const at::Tensor weights = torch::arange(t.numel(), at::kDouble).view(t.sizes());
        sum = sum + (t * (weights + group.rank())).sum();
      }
      sum.backward();
      for (const auto& t : all) {
        const at::Tensor weights = torch::arange(t.numel(), at::kDouble).view(t.sizes());
        EXPECT_TRUE(Close(t.grad(), weights + 0.5));
        EXPECT_EQ(t.grad().strides(), t.strides());
      }
    }
  });
}

TEST(ReducerTest, TakesAGradientThatTheUserPutThere) {
  RunRanks(2, [](ProcessGroup& group) {
    const auto tensors = ThreeParameters();
    Reducer reducer(DefaultGroup(), Named(tensors), {});
    for (const auto& t : tensors)
      t.mutable_grad() = torch::full({4}, 10.0 * group.rank(), at::kDouble);
    (tensors[0] + tensors[1] + tensors[2]).sum().backward();
    for (const auto& t : tensors) EXPECT_TRUE(t.grad().eq(6).all().item<bool>());  // (1 + 11) / 2
  });
}

TEST(ReducerTest, OneCollectivePerBucketAndStep) {
  RunRanks(2, [](ProcessGroup& group) {
    const auto tensors = ThreeParameters();
    Reducer reducer(DefaultGroup(), Named(tensors), {});
    Chain(tensors, {2, 1, 0}, 1.0).backward();
    const int64_t before = group.traffic().collectives;
    reducer.BeginForward();
    Chain(tensors, {2, 1, 0}, 1.0).backward();
    EXPECT_EQ(group.traffic().collectives, before + 1);
  });
}

}  // namespace
}  // namespace medfusion::testing
