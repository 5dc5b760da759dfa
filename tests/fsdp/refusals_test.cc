// What goes wrong is said by name, on all ranks, and leaves the wrapper usable.
#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Linear, then a failure where and when told, then linear.
class Failing : public torch::nn::Module {
 public:
  Failing() {
    first = register_module("first", torch::nn::Linear(kFeatures, 3));
    last = register_module("last", torch::nn::Linear(3, 1));
    to(at::kDouble);
  }
  struct Fuse : public torch::autograd::Function<Fuse> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                              bool blow) {
      context->saved_data["blow"] = blow;
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      if (context->saved_data["blow"].toBool()) throw std::runtime_error("the fuse blew");
      return {gradients[0], {}};
    }
  };
  at::Tensor forward(const at::Tensor& x, bool fail_forward, bool fail_backward) {
    const at::Tensor hidden = Fuse::apply(first->forward(x), fail_backward);
    if (fail_forward) throw std::runtime_error("forward gave up");
    return last->forward(hidden);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

TEST(FsdpRefusalsTest, AnExceptionInForwardOrBackwardLeavesItUsable) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = std::make_shared<Failing>();
    FSDPWrapper model(net, EveryModuleAUnit());
    const at::Tensor x = Input(group.rank());
    const auto expect_clean = [&] {
      for (const auto& unit : model->sharded_model().units()) EXPECT_FALSE(unit->in_memory());
      for (const at::Tensor& slice : model->parameters()) EXPECT_FALSE(slice.grad().defined());
      for (const at::Tensor& parameter : net->parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
    };
    std::vector<at::Tensor> expected;
    model->forward(x, false, false).square().sum().backward();
    for (const at::Tensor& slice : model->parameters()) expected.push_back(slice.grad().clone());
    model->zero_grad();

    EXPECT_THAT(ErrorOf([&] { model->forward(x, true, false); }), HasSubstr("forward gave up"));
    expect_clean();
    EXPECT_THAT(ErrorOf([&] { model->forward(x, false, true).square().sum().backward(); }),
                HasSubstr("the fuse blew"));
    expect_clean();

    model->forward(x, false, false).square().sum().backward();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(model->parameters()[i].grad(), expected[i])) << i;
    }
  });
}

TEST(FsdpRefusalsTest, AModelThatWritesToAParameterInForwardIsRefused) {
  class Writer : public torch::nn::Module {
   public:
    Writer() { weight = register_parameter("weight", torch::ones({4})); }
    at::Tensor forward(const at::Tensor& x) {
      torch::NoGradGuard no_grad;
      weight.clamp_(-1, 1);
      return x * weight;
    }
    at::Tensor weight;
  };
  RunRanks(2, [](ProcessGroup&) {
    FSDPWrapper model(std::make_shared<Writer>());
    EXPECT_THAT(ErrorOf([&] { model->forward(torch::ones({4})); }),
                AllOf(HasSubstr("aten::clamp_"), HasSubstr("'weight'"), HasSubstr("optimizer")));
  });
}

TEST(FsdpRefusalsTest, AnotherThreadInsideForwardIsRefused) {
  class Threaded : public torch::nn::Module {
   public:
    Threaded() { layer = register_module("layer", torch::nn::Linear(2, 2)); }
    at::Tensor forward(const at::Tensor& x) {
      std::thread([&] { error = ErrorOf([&] { layer->forward(x); }); }).join();
      std::thread([&] { nested = ErrorOf([&] { (*wrapper)->forward(x); }); }).join();
      return x;
    }
    torch::nn::Linear layer{nullptr};
    FSDPWrapper<Threaded>* wrapper = nullptr;
    std::string error, nested;
  };
  RunRanks(2, [](ProcessGroup&) {
    auto net = std::make_shared<Threaded>();
    FSDPWrapper model(net);
    net->wrapper = &model;
    model->forward(torch::ones({1, 2}));
    EXPECT_THAT(net->error, HasSubstr("on another thread"));
    EXPECT_THAT(net->nested, HasSubstr("one thread uses an FSDPWrapper"));
  });
}

// Runs its units forwards or backwards.
class TwoWays : public torch::nn::Module {
 public:
  explicit TwoWays(std::vector<std::string> names) {
    for (const std::string& name : names) {
      layers_.push_back(register_module(name, torch::nn::Linear(3, 3)));
    }
  }
  at::Tensor forward(at::Tensor x, bool first_first) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[first_first ? i : layers_.size() - 1 - i]->forward(x);
    }
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

TEST(FsdpRefusalsTest, DifferentOrdersOfUnitsAreFoundInTheFirstStepByName) {
  RunRanks(2, [](ProcessGroup& group) {
    FSDPOptions options = EveryModuleAUnit();
    options.forward_prefetch = options.backward_prefetch = 0;
    FSDPWrapper model(std::make_shared<TwoWays>(std::vector<std::string>{"a", "b"}), options);
    const auto in_two_orders = [&] {
      return model->forward(torch::ones({1, 3}), group.rank() == 0).sum();
    };
    EXPECT_THAT(ErrorOf(in_two_orders),
                AllOf(HasSubstr("unit 'a' on rank 0"), HasSubstr("unit 'b' on rank 1")));
    // Later, at the end of backward, on all ranks, before gradients are seen.
    model->forward(torch::ones({1, 3}), true).sum().backward();
    model->zero_grad();
    EXPECT_THAT(ErrorOf([&] { in_two_orders().backward(); }),
                HasSubstr("different orders in this step"));
    for (const at::Tensor& slice : model->parameters()) EXPECT_FALSE(slice.grad().defined());
    // Without gradients, at the end of forward.
    const torch::NoGradGuard no_grad;
    model->forward(torch::ones({1, 3}), true);
    EXPECT_THAT(ErrorOf(in_two_orders), HasSubstr("different orders in this step"));
  });
}

TEST(FsdpRefusalsTest, ARankThatPagesOtherUnitsThanTheOthersSaysSoAndAllEnd) {
  GroupOptions options;
  options.timeout = std::chrono::seconds(1);
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        FSDPWrapper model(std::make_shared<TwoWays>(std::vector<std::string>{"a", "b", "c", "d"}),
                          EveryModuleAUnit());
        model->forward(torch::ones({1, 3}), true).sum().backward();
        model->forward(torch::ones({1, 3}), group.rank() == 0).sum().backward();
      },
      options);
  EXPECT_THAT(errors[0], Not(IsEmpty()));
  EXPECT_THAT(errors[1], AnyOf(HasSubstr("left the order of units of earlier steps, with unit 'd'"),
                               HasSubstr("different orders in this step")));
}

TEST(FsdpRefusalsTest, RanksWithDifferentModulesOrOptionsAreToldWhatDiffers) {
  const auto errors = RunRanksThatMayFail(
      2, [](ProcessGroup& group) { FSDPWrapper model(torch::nn::Linear(3, group.rank() + 2)); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("weight"), HasSubstr("[2, 3]"), HasSubstr("[3, 3]"))));
  const auto options = RunRanksThatMayFail(2, [](ProcessGroup& group) {
    FSDPOptions options;
    if (group.rank() == 1) options.unit_names = {"nowhere"};
    FSDPWrapper model(torch::nn::Linear(3, 2), options);
  });
  EXPECT_THAT(options, Each(AllOf(HasSubstr("rank 1"), HasSubstr("no module 'nowhere'"))));
}

TEST(FsdpRefusalsTest, WhatItCannotDoIsRefused) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Embedding sparse(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    FSDPWrapper embedding(sparse);
    EXPECT_THAT(ErrorOf([&] { embedding->forward(torch::zeros({2}, at::kLong)).sum().backward(); }),
                AllOf(HasSubstr("'weight' is sparse"), HasSubstr("sparse(true)")));
    EXPECT_FALSE(sparse->weight.grad().defined());
    FSDPWrapper linear(torch::nn::Linear(2, 2));
    EXPECT_THAT(ErrorOf([&] {
                  linear->forward(torch::ones({1, 2})).sum().backward({}, std::nullopt, true);
                }),
                HasSubstr("create_graph"));
  });
}

class FsdpOneRankAloneTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpOneRankAloneTest, ::testing::Values(2, 3, 4));

// Rank 0's batch takes the branch, which is a unit of its own.
at::Tensor BatchThatBranchesOnRankZero(int rank) {
  return torch::full({2, kFeatures}, rank == 0 ? 2.0 : 0.0, at::kDouble);
}

TEST_P(FsdpOneRankAloneTest, AUnitThatOneRankAloneTouchesIsNamedOnAllRanks) {
  const auto errors = RunRanksThatMayFail(GetParam(), [](ProcessGroup& group) {
    FSDPWrapper<Model> model(Seeded<Branches>(), EveryModuleAUnit());
    model->forward(BatchThatBranchesOnRankZero(group.rank())).sum().backward();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("unit 'sometimes'"), HasSubstr("on rank 0"),
                                 HasSubstr("forward has ended"))));
}

TEST(FsdpRefusalsTest, AUnitThatOneRankAloneTouchesLaterEndsAllRanksAndIsNamedOnItsOwn) {
  GroupOptions options;
  options.timeout = std::chrono::seconds(1);
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        FSDPWrapper<Model> model(Seeded<Branches>(), EveryModuleAUnit());
        model->forward(BatchThatBranchesOnRankZero(1)).sum().backward();
        model->forward(BatchThatBranchesOnRankZero(group.rank())).sum().backward();
      },
      options);
  EXPECT_THAT(errors, Each(Not(IsEmpty())));
  EXPECT_THAT(errors[0], HasSubstr("'sometimes'"));
}

}  // namespace
}  // namespace medfusion::testing
