// What DeferInit cannot record is an error that names the operator, and nothing else breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>

#include "medfusion/ddp/sync_batch_norm.h"
#include "medfusion/deferred_init/deferred_init.h"
#include "tests/testing/error_of.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DeferInitRefusalsTest, AnOperatorThatNeedsValuesIsNamed) {
  EXPECT_THAT(ErrorOf([] { DeferInit([] { return torch::rand({3}).sum().item<float>(); }); }),
              AllOf(HasSubstr("aten::item"), HasSubstr("needs values"), HasSubstr("Materialize")));
  EXPECT_THAT(
      ErrorOf([] { DeferInit([] { return torch::equal(torch::rand({3}), torch::ones({3})); }); }),
      HasSubstr("aten::equal"));
  EXPECT_THAT(ErrorOf([] { DeferInit([] { return torch::rand({3}).nonzero(); }); }),
              HasSubstr("aten::nonzero"));
}

TEST(DeferInitRefusalsTest, AskingForMemorySaysWhatToDo) {
  EXPECT_THAT(ErrorOf([] { DeferInit([] { return torch::rand({3}).data_ptr<float>()[0]; }); }),
              AllOf(HasSubstr("has no memory yet"), HasSubstr("medfusion::Materialize")));
  const auto net = DeferInit([] { return torch::nn::Linear(3, 3); });
  EXPECT_THAT(ErrorOf([&] { net->weight.data_ptr<float>(); }), HasSubstr("not allocated yet"));
  Materialize(*net);
  EXPECT_NO_THROW(net->weight.data_ptr<float>());
}

TEST(DeferInitRefusalsTest, ChangingATensorAfterwardsIsRefusedUntilItHasValues) {
  auto net = DeferInit([] { return torch::nn::Linear(3, 3); });
  EXPECT_THAT(ErrorOf([&] { torch::nn::init::zeros_(net->weight); }),
              AllOf(HasSubstr("aten::"), HasSubstr("comes too late")));
  EXPECT_THAT(ErrorOf([&] {
                net->forward(torch::ones({1, 3}));
              }),
              AllOf(HasSubstr("aten::"), HasSubstr("has a shape but no values")));
  at::Tensor real = torch::ones({3});
  EXPECT_THAT(ErrorOf([&] { real.copy_(net->bias.detach()); }), HasSubstr("aten::copy_"));
  Materialize(*net);
  torch::nn::init::zeros_(net->weight);
  EXPECT_TRUE(at::equal(net->forward(torch::ones({1, 3}))[0], net->bias));
}

TEST(DeferInitRefusalsTest, LargeTensorsFromOutsideMustNotChange) {
  at::Tensor outside = torch::ones({1 << 20});
  const auto net = DeferInit([&] {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter("a", outside * 2);
    module->register_parameter("b", torch::zeros({1 << 20}) + outside);
    return module;
  });
  EXPECT_FALSE(IsDeferred(net->named_parameters()["a"])) << "real tensors give real tensors";
  outside.add_(1);
  EXPECT_THAT(ErrorOf([&] { Materialize(*net); }), HasSubstr("was changed after DeferInit"));
}

TEST(DeferInitRefusalsTest, TensorsOfTwoDeferInitsDoNotMix) {
  const auto first = DeferInit([] { return torch::nn::Linear(3, 3); });
  EXPECT_THAT(ErrorOf([&] { DeferInit([&] { return first->weight.detach() * 2; }); }),
              HasSubstr("earlier DeferInit"));
}

TEST(DeferInitRefusalsTest, AFailedConstructorLeavesEagerModulesAsTheyAre) {
  EXPECT_ANY_THROW(DeferInit([]() -> int { throw std::runtime_error("constructor"); }));
  const torch::nn::Linear eager(3, 3);
  EXPECT_FALSE(IsDeferred(eager->weight));
  EXPECT_TRUE(eager->weight.device().is_cpu());
}

// The other use of a key of dispatch, in the same program.
TEST(DeferInitRefusalsTest, WorksBesideInterceptedBatchNorms) {
  torch::manual_seed(2);
  const torch::nn::BatchNorm1d eager(5);
  torch::manual_seed(2);
  const SyncBatchNormScope scope(nullptr);
  const auto net = DeferInit([] { return torch::nn::BatchNorm1d(5); });
  Materialize(*net);
  EXPECT_TRUE(at::equal(net->weight, eager->weight));
}

}  // namespace
}  // namespace medfusion::testing
