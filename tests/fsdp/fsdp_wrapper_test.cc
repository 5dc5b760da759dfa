#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::HasSubstr;

TEST(FsdpWrapperTest, WrapsHoldersAndKeepsNamesAndShapes) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Linear linear(3, 2);
    FSDPWrapper model(linear);
    static_assert(std::is_same_v<decltype(model), FSDPWrapper<torch::nn::Linear>>);
    ASSERT_EQ(model->named_parameters().size(), 2u);
    EXPECT_EQ(model->named_parameters()[0].first, "weight");
    EXPECT_EQ(model->named_parameters()[1].first, "bias");
    EXPECT_EQ(linear->weight.sizes(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(model->forward(torch::ones({5, 3})).sizes(), (std::vector<int64_t>{5, 2}));
  });
}

TEST(FsdpWrapperTest, EachRankHoldsItsShareAndNothingElseBetweenSteps) {
  RunRanks(4, [](ProcessGroup& group) {
    torch::nn::Linear linear(3, 3);  // 12 elements
    FSDPWrapper model(linear);
    int64_t numel = 0;
    for (const at::Tensor& slice : model->parameters()) numel += slice.numel();
    EXPECT_EQ(numel, 3);
    // Rank 3 holds the bias, the others the weight: the rest of the slices are empty.
    EXPECT_EQ(model->parameters()[1].numel(), group.rank() == 3 ? 3 : 0);
    EXPECT_EQ(linear->weight.storage().data(), nullptr);
    EXPECT_ANY_THROW(linear->weight.data_ptr<float>());
  });
}

TEST(FsdpWrapperTest, ParametersAndBuffersBecomeRankZeros) {
  RunRanks(3, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(4);
    {
      torch::NoGradGuard no_grad;
      norm->weight.fill_(group.rank() + 1);
      norm->running_mean.fill_(group.rank() + 10);
      norm->num_batches_tracked.fill_(group.rank() + 100);
    }
    FSDPWrapper model(norm);
    EXPECT_TRUE(norm->running_mean.eq(10).all().item<bool>());
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 100);
    const FullParameters scope(model);
    EXPECT_TRUE(norm->weight.eq(1).all().item<bool>());
  });
}

TEST(FsdpWrapperTest, BatchNormKeepsItsStatisticsAndTrains) {
  RunRanks(2, [](ProcessGroup&) {
    // The same batch on both ranks: then a batch norm of each rank's own equals one rank alone.
    const at::Tensor x = Input(0);
    torch::nn::BatchNorm1d alone(kFeatures), norm(kFeatures);
    alone->to(at::kDouble);
    norm->to(at::kDouble);
    FSDPWrapper model(norm);
    for (int step = 0; step < 3; ++step) {
      alone->zero_grad();
      model->zero_grad();
      alone->forward(x * (step + 1)).square().sum().backward();
      model->forward(x * (step + 1)).square().sum().backward();
    }
    EXPECT_TRUE(at::equal(norm->running_mean, alone->running_mean));
    EXPECT_TRUE(at::equal(norm->running_var, alone->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
    // Of 12 elements, rank 0 holds the weight and rank 1 the bias.
    const at::Tensor& mine = model->group()->rank() == 0 ? alone->weight : alone->bias;
    const at::Tensor slice = model->parameters()[model->group()->rank()];
    EXPECT_TRUE(at::allclose(slice.grad(), mine.grad(), 1e-12, 1e-12));
    model->eval();
    alone->eval();
    EXPECT_TRUE(at::allclose(model->forward(x), alone->forward(x), 1e-12, 1e-12));
  });
}

TEST(FsdpWrapperTest, FrozenParametersStayBitwiseUnderWeightDecay) {
  RunRanks(3, [](ProcessGroup& group) {
    auto net = std::make_shared<Frozen>();
    const at::Tensor before = net->first->weight.detach().clone();
    FSDPOptions options = EveryModuleAUnit();
    FSDPWrapper model(net, options);
    group.Broadcast(before, 0)->Wait();
    torch::optim::AdamW optimizer(model->parameters(),
                                  torch::optim::AdamWOptions(0.1).weight_decay(0.5));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      model->forward(Input(group.rank()).to(at::kFloat)).square().sum().backward();
      optimizer.step();
    }
    const FullParameters scope(model, false);
    EXPECT_TRUE(at::equal(net->first->weight, before));
    EXPECT_FALSE(net->first->weight.requires_grad());
  });
}

TEST(FsdpWrapperTest, TiedWeightsTrainEveryRow) {
  RunRanks(4, [](ProcessGroup&) {
    auto net = std::static_pointer_cast<TiedDecoder>(Seeded<TiedDecoder>());
    FSDPWrapper model(net, EveryModuleAUnit());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    const at::Tensor before = [&] {
      const FullParameters scope(model, false);
      return net->weight().detach().clone();
    }();
    model->forward(torch::ones({2, 3}, at::kLong)).square().sum().backward();
    optimizer.step();
    const FullParameters scope(model, false);
    EXPECT_TRUE(net->weight().ne(before).all().item<bool>());
  });
}

TEST(FsdpWrapperTest, StateDescribesWhereEachSliceBelongs) {
  RunRanks(3, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    for (const ShardedTensor& tensor : model->DescribeState()) {
      const at::Tensor whole = reference->named_parameters()[tensor.name];
      EXPECT_EQ(whole.sizes().vec(), tensor.global_shape);
      EXPECT_TRUE(at::equal(tensor.local.detach(), whole.detach().flatten().narrow(
                                                       0, tensor.offset, tensor.local.numel())))
          << tensor.name;
    }
  });
}

TEST(FsdpWrapperTest, AModuleIsWrappedOnceAndParkedForeverWhenItsWrapperIsGone) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Linear linear(3, 2);
    {
      FSDPWrapper model(linear);
      EXPECT_THAT(ErrorOf([&] { FSDPWrapper second(linear); }),
                  HasSubstr("'weight' is sharded already"));
      model->forward(torch::ones({1, 3}));
    }
    EXPECT_THAT(ErrorOf([&] {
                  linear->forward(torch::ones({1, 3}));
                }),
                HasSubstr("after its FSDPWrapper was destroyed"));
  });
}

TEST(FsdpWrapperTest, SeveralModelsTrainInOneProcessAndOneGraph) {
  RunRanks(2, [](ProcessGroup& group) {
    auto encoder = Seeded<Mlp>();
    torch::nn::Linear head(1, 1);
    head->to(at::kDouble);
    FSDPWrapper<Model> first(encoder, EveryModuleAUnit());
    FSDPWrapper second(head, EveryModuleAUnit());
    for (int step = 0; step < 3; ++step) {
      second->forward(first->forward(Input(group.rank()))).sum().backward();
    }
    for (const at::Tensor& slice : first->parameters()) EXPECT_TRUE(slice.grad().defined());
    for (const at::Tensor& slice : second->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

}  // namespace
}  // namespace medfusion::testing
