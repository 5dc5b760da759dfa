#include "medfusion/ddp/unused_parameters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "medfusion/ddp/ddp_wrapper.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

struct Boxes {
  at::Tensor corners;
};

}  // namespace
}  // namespace medfusion::testing

template <>
struct medfusion::OutputTensors<medfusion::testing::Boxes> {
  static void Collect(const medfusion::testing::Boxes& boxes, std::vector<at::Tensor>& tensors) {
    tensors.push_back(boxes.corners);
  }
};

namespace medfusion::testing {
namespace {

DDPOptions FindUnused() {
  DDPOptions options;
  options.find_unused_parameters = true;
  return options;
}

TEST(OutputTensorsTest, FindsTensorsInNestedContainersAndTypesOfTheUser) {
  using Nested = std::tuple<at::Tensor, std::vector<std::map<std::string, Boxes>>,
                            std::optional<at::Tensor>, std::pair<at::Tensor, at::Tensor>>;
  const at::Tensor t = torch::zeros({1});
  std::vector<at::Tensor> found;
  OutputTensors<Nested>::Collect({t, {{{"a", Boxes{t}}, {"b", Boxes{t}}}}, std::nullopt, {t, t}},
                                 found);
  EXPECT_EQ(found.size(), 5u);
  struct Unknown {};
  static_assert(!HasOutputTensors<Unknown>::value);
  static_assert(!HasOutputTensors<std::vector<Unknown>>::value);
  static_assert(!HasOutputTensors<std::tuple<at::Tensor, Unknown>>::value);
  static_assert(HasOutputTensors<Nested>::value);
}

TEST(UnusedParametersTest, WalkMarksWhatBackwardWouldReach) {
  const at::Tensor a = torch::ones({2}, torch::requires_grad());
  const at::Tensor b = torch::ones({2}, torch::requires_grad());
  const at::Tensor c = torch::ones({2}, torch::requires_grad());
  const at::Tensor returned = torch::ones({2}, torch::requires_grad());
  const ParameterIndex index = {{a.unsafeGetTensorImpl(), 0},
                                {b.unsafeGetTensorImpl(), 1},
                                {c.unsafeGetTensorImpl(), 2},
                                {returned.unsafeGetTensorImpl(), 3}};
  std::vector<char> reached(4, 0);
  const std::vector<at::Tensor> outputs = {a * b.detach() + c, returned, at::Tensor()};
  MarkReachable(outputs, index, reached);
  EXPECT_EQ(reached, (std::vector<char>{1, 0, 1, 1}));
}

TEST(UnusedParametersTest, UnusedHereCountsAsZero) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net, FindUnused());
    model->forward(InputOf(group.rank()), group.rank() == 0, true).sum().backward();
    EXPECT_TRUE(Close(net->left->weight.grad()[0], InputOf(0).sum(0) / 2));
    EXPECT_TRUE(Close(net->right->weight.grad()[0], (InputOf(0) + InputOf(1)).sum(0) / 2));
  });
}

TEST(UnusedParametersTest, UnusedEverywhereKeepsItsGradientToTheLastBit) {
  RunRanks(3, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net, FindUnused());
    const auto step = [&](bool left) {
      model->forward(InputOf(group.rank()), left, true).sum().backward();
    };
    step(false);
    EXPECT_FALSE(net->left->weight.grad().defined());
    step(true);
    const at::Tensor old = net->left->weight.grad().clone();
    model->module()->right->zero_grad();
    step(false);
    EXPECT_TRUE(at::equal(net->left->weight.grad(), old));
    model->zero_grad(/*set_to_none=*/false);
    step(false);
    EXPECT_TRUE(net->left->weight.grad().eq(0).all().item<bool>());
    model->zero_grad(/*set_to_none=*/true);
    step(false);
    EXPECT_FALSE(net->left->weight.grad().defined());
  });
}

TEST(UnusedParametersTest, AccumulatedUnderNoSyncCountsThoughTheLastBackwardLeftItOut) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoBranches>();
    DDPWrapper model(net, FindUnused());
    {
      const auto unsynced = model->no_sync();
      model->forward(InputOf(group.rank()), true, false).sum().backward();
    }
    model->forward(InputOf(group.rank()), false, true).sum().backward();
    EXPECT_TRUE(Close(net->left->weight.grad()[0], (InputOf(0) + InputOf(1)).sum(0) / 2));
  });
}

class TwoOutputs : public TwoBranches {
 public:
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    return {left->forward(x), right->forward(x)};
  }
};

TEST(UnusedParametersTest, AnOutputThatTheLossLeavesOutIsUnusedToo) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = DoubleModule<TwoOutputs>();
    DDPWrapper model(net, FindUnused());
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      const auto [left, right] = model->forward(InputOf(group.rank()));
      (group.rank() == 0 || step == 1 ? left : right).sum().backward();
      const at::Tensor sum = step == 1 ? (InputOf(0) + InputOf(1)).sum(0) : InputOf(0).sum(0);
      EXPECT_TRUE(Close(net->left->weight.grad()[0], sum / 2));
    }
  });
}

TEST(UnusedParametersTest, ATensorThatForwardDidNotReturnIsAnErrorOnceItsBucketWasSent) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = DoubleModule<TwoBranches>();
    DDPOptions options = FindUnused();
    options.buckets = {1, 1};
    DDPWrapper model(net, options);
    const at::Tensor hidden = net->right->forward(InputOf(0));  // behind the wrapper's back
    const at::Tensor loss = (model->forward(InputOf(0), true, false) + hidden).sum();
    try {
      loss.backward();
      ADD_FAILURE() << "no error";
    } catch (const GradientError& error) {
      EXPECT_NE(std::string(error.what()).find("forward did not return"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
