// Forwards without gradients.
#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

TEST(FsdpEvaluationTest, EvaluatesWithoutGradientsAndParksAfterwards) {
  RunRanks(3, [](ProcessGroup& group) {
    const auto reference = Seeded<Text>();
    auto net = Seeded<Text>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    const at::Tensor x = torch::arange(12, at::kLong).view({2, 6}) + group.rank();
    const at::Tensor expected = reference->forward(x).detach();
    const auto expect_parked = [&] {
      for (const auto& unit : model->sharded_model().units()) EXPECT_FALSE(unit->in_memory());
    };
    {
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-12, 1e-13));
      expect_parked();
    }
    {
      c10::InferenceMode inference;
      EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-12, 1e-13));
      expect_parked();
    }
    model->forward(x).sum().backward();
    expect_parked();
    for (const at::Tensor& slice : model->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

template <typename M>
void CopyValues(FSDPWrapper<Model>& from, M& to) {
  const FullParameters scope(from, /*writeback=*/false);
  torch::NoGradGuard no_grad;
  for (const auto& item : from->module()->named_parameters()) {
    to.named_parameters()[item.key()].copy_(item.value());
  }
}

class FsdpEvaluationParityTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpEvaluationParityTest, ::testing::Values(1, 2, 3, 4));

// Evaluates between forward and backward, and between steps, in both modes.
TEST_P(FsdpEvaluationParityTest, InsideAndBetweenStepsItGivesAWholeModelsBitsAndDisturbsNothing) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    FSDPWrapper<Model> model(Seeded<Text>(), EveryModuleAUnit());
    FSDPWrapper<Model> undisturbed(Seeded<Text>(), EveryModuleAUnit());
    const auto whole = Seeded<Text>();
    torch::optim::SGD optimizer(model->parameters(), 0.1), other(undisturbed->parameters(), 0.1);
    const at::Tensor x = torch::arange(12, at::kLong).view({2, 6}) + group.rank();
    const at::Tensor held_out = x.flip(1);
    const auto expect_bits_of_whole = [&] {
      torch::NoGradGuard no_grad;
      const at::Tensor expected = whole->forward(held_out);
      EXPECT_TRUE(at::equal(model->forward(held_out), expected));
      c10::InferenceMode inference;
      EXPECT_TRUE(at::equal(model->forward(held_out), whole->forward(held_out)));
    };
    for (int step = 0; step < 3; ++step) {
      CopyValues(model, *whole);
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(x).square().mean();
      expect_bits_of_whole();
      loss.backward();
      expect_bits_of_whole();
      optimizer.step();

      other.zero_grad();
      undisturbed->forward(x).square().mean().backward();
      other.step();
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        EXPECT_TRUE(at::equal(model->parameters()[i], undisturbed->parameters()[i])) << i;
      }
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
