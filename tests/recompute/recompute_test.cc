// Recomputation in one process: everything bit for bit as without it, in less memory.
#include "medfusion/recompute/recompute.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tests/testing/error_of.h"

namespace medfusion::testing {
namespace {

using Function = std::function<at::Tensor(at::Tensor)>;

at::Tensor Values(at::IntArrayRef sizes) {
  return torch::randn(sizes, at::detail::createCPUGenerator(3), at::kDouble);
}

torch::nn::Sequential Block() {
  torch::manual_seed(5);
  torch::nn::Sequential block(torch::nn::Linear(6, 16), torch::nn::GELU(), torch::nn::Dropout(0.3),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})),
                              torch::nn::Linear(16, 6));
  block->to(at::kDouble);
  return block;
}

// Loss, gradient of the input, gradients of the parameters.
std::vector<at::Tensor> Train(const Function& function, std::vector<at::Tensor> parameters) {
  for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  torch::manual_seed(11);
  const at::Tensor x = Values({4, 6}).requires_grad_();
  const at::Tensor loss = function(x * 1.5).square().sum();
  loss.backward();
  std::vector<at::Tensor> results = {loss.detach(), x.grad()};
  for (const at::Tensor& parameter : parameters) results.push_back(parameter.grad().clone());
  results.push_back(torch::rand({3}));  // the generator is where it would be
  return results;
}

void ExpectSame(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "result " << i;
}

TEST(RecomputeTest, GivesTheSameBitsUnderDropout) {
  auto block = Block();
  int calls = 0;
  const auto call = [&](at::Tensor x) {
    ++calls;
    return block->forward(x);
  };
  const auto plain = Train(call, block->parameters());
  EXPECT_EQ(calls, 1);
  ExpectSame(plain, Train([&](at::Tensor x) { return Recompute(call, x); }, block->parameters()));
  EXPECT_EQ(calls, 3);
}

TEST(RecomputeTest, SeveralRegionsInOneGraphShareParameters) {
  auto block = Block();
  const auto call = [&](at::Tensor x) { return block->forward(x); };
  ExpectSame(Train([&](at::Tensor x) { return call(call(call(x))); }, block->parameters()),
             Train([&](at::Tensor x) { return Recompute(call, call(Recompute(call, x))); },
                   block->parameters()));
}

TEST(RecomputeTest, RegionsNest) {
  auto block = Block();
  const auto call = [&](at::Tensor x) { return block->forward(x); };
  const auto nested = [&](at::Tensor x) {
    return Recompute([&](at::Tensor y) { return Recompute(call, Recompute(call, y).sin()); }, x);
  };
  ExpectSame(Train([&](at::Tensor x) { return call(call(x).sin()); }, block->parameters()),
             Train(nested, block->parameters()));
  ExpectSame(Train([&](at::Tensor x) { return call(call(x).sin()); }, block->parameters()),
             Train([&](at::Tensor x) { return Recompute(nested, x); }, block->parameters()));
}

struct Pair {
  at::Tensor sum;
  std::vector<at::Tensor> parts;
};

TEST(RecomputeTest, TakesAndReturnsAnything) {
  const auto split = [](const std::vector<at::Tensor>& tensors, const at::Tensor& indices,
                        std::optional<at::Tensor> none, double factor, const char* name) {
    EXPECT_FALSE(none.has_value());
    EXPECT_EQ(std::string(name), "name");
    const at::Tensor picked = tensors[0].index_select(1, indices).exp();
    return Pair{picked.sin() * factor, {picked, tensors[1].tanh()}};
  };
  const at::Tensor indices = torch::tensor({0, 2, 2}, at::kLong);
  const auto use = [](const Pair& pair) {
    return pair.sum.sum() + pair.parts[0].square().sum(1, true) + pair.parts[1].cos();
  };
  ExpectSame(Train(
                 [&](at::Tensor x) {
                   return use(split({x, x * 2}, indices, std::nullopt, 0.5, "name"));
                 },
                 {}),
             Train(
                 [&](at::Tensor x) {
                   return use(Recompute(split, std::vector<at::Tensor>{x, x * 2}, indices,
                                        std::optional<at::Tensor>(), 0.5, "name"));
                 },
                 {}));
  at::Tensor y, x = Values({3}).requires_grad_();
  Recompute([&y](const at::Tensor& in) { y = in.exp().sin(); }, x);
  y.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), x.exp().cos() * x.exp()));
}

TEST(RecomputeTest, IsAPlainCallWithoutGradMode) {
  const at::Tensor x = Values({3}).requires_grad_();
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(Recompute([](const at::Tensor& in) { return in.exp(); }, x).requires_grad());
}

// What is in memory of all that layers computed, in tensors; looked at whenever something more is
// computed and whenever a gradient is.
class LiveTensors {
 public:
  at::Tensor Note(at::Tensor tensor) {
    made_.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        tensor.storage().unsafeGetStorageImpl()));
    Look();
    tensor.register_hook([this](const at::Tensor&) { Look(); });
    return tensor;
  }
  int Count() const {
    return static_cast<int>(std::count_if(made_.begin(), made_.end(),
                                          [](const auto& weak) { return weak.use_count() > 0; }));
  }
  int peak() const { return peak_; }

 private:
  void Look() { peak_ = std::max(peak_, Count()); }
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made_;
  int peak_ = 0;
};

TEST(RecomputeTest, KeepsNoActivationsAndFreesThemAsBackwardProceeds) {
  constexpr int kLayers = 8;
  for (const bool recompute : {false, true}) {
    LiveTensors live;
    // Saved are its argument and the exponential; the first sine is not.
    const auto layer = [&](const at::Tensor& x) {
      return live.Note(live.Note(live.Note(x.sin()).exp()).sin());
    };
    const at::Tensor x = Values({128}).requires_grad_();
    at::Tensor y = x;
    int before_first_layer = -1;
    for (int i = 0; i < kLayers; ++i) {
      y = recompute ? Recompute(layer, y) : layer(y);
      if (i == 0) y.register_hook([&](const at::Tensor&) { before_first_layer = live.Count(); });
    }
    EXPECT_EQ(live.Count(), recompute ? kLayers : 2 * kLayers);
    const at::Tensor loss = y.sum();
    y = at::Tensor();
    loss.backward();
    // The last layer holds its three results while it runs.
    EXPECT_EQ(live.peak(), recompute ? kLayers + 2 : 2 * kLayers + 1);
    EXPECT_EQ(before_first_layer, recompute ? 0 : 1);
    EXPECT_EQ(live.Count(), 0);
  }
}

TEST(RecomputeTest, RunsNoFurtherThanNeeded) {
  int begun = 0, ended = 0;
  const auto call = [&](const at::Tensor& x) {
    ++begun;
    const at::Tensor y = x.exp().sin();
    ++ended;
    return y + 1;
  };
  for (const bool early : {true, false}) {
    begun = ended = 0;
    const at::Tensor x = Values({3}).requires_grad_();
    Recompute(RecomputeOptions{.early_stop = early}, call, x).sum().backward();
    EXPECT_EQ(begun, 2);
    EXPECT_EQ(ended, early ? 1 : 2);
  }
}

TEST(RecomputeTest, BackwardMayBeRepeatedAndDifferentiated) {
  const auto call = [](const at::Tensor& x) { return (x.exp() * x).sin(); };
  const auto gradients = [&](bool recompute) {
    const at::Tensor x = Values({5}).requires_grad_();
    const at::Tensor y = recompute ? Recompute(call, x) : call(x);
    const auto first = torch::autograd::grad({y.sum()}, {x}, {}, true, true);
    const auto second = torch::autograd::grad({first[0].square().sum()}, {x}, {}, true, false);
    y.sum().backward({}, true);
    y.sum().backward();
    return std::vector<at::Tensor>{first[0].detach(), second[0].detach(), x.grad()};
  };
  ExpectSame(gradients(false), gradients(true));
}

TEST(RecomputeTest, AGradientInsideOfARegion) {
  const auto call = [](const at::Tensor& x) {
    const at::Tensor energy = x.exp().sin().sum();
    return torch::autograd::grad({energy}, {x}, {}, true, true)[0].tanh() * x;
  };
  ExpectSame(Train(call, {}), Train([&](at::Tensor x) { return Recompute(call, x); }, {}));
}

TEST(RecomputeTest, RestoresAutocast) {
  torch::nn::Linear linear(6, 6);
  const auto call = [&](at::Tensor x) { return linear->forward(linear->forward(x).relu()); };
  const auto train = [&](bool recompute) {
    linear->zero_grad();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    const at::Tensor x = Values({4, 6}).to(at::kFloat).requires_grad_();
    const at::Tensor y = recompute ? Recompute(call, x) : call(x);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.to(at::kFloat).square().sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return std::vector<at::Tensor>{x.grad(), linear->weight.grad().clone()};
  };
  ExpectSame(train(false), train(true));
}

TEST(RecomputeTest, BatchNormMovesItsStatisticsTwice) {
  torch::nn::BatchNorm1d norm(6);
  norm->to(at::kDouble);
  const auto call = [&](at::Tensor x) { return norm->forward(x).sin(); };
  const auto plain = Train(call, norm->parameters());
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  ExpectSame(plain, Train([&](at::Tensor x) { return Recompute(call, x); }, norm->parameters()));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
}

TEST(RecomputeTest, TorchScriptInside) {
  torch::jit::Module script("script");
  script.define(R"(
    def forward(self, x):
        y = torch.tanh(x) * torch.sigmoid(x)
        return torch.exp(y) * y
  )");
  const auto call = [&](at::Tensor x) { return script.forward({x}).toTensor(); };
  const auto expected = Train(
      [](at::Tensor x) {
        const at::Tensor y = torch::tanh(x) * torch::sigmoid(x);
        return torch::exp(y) * y;
      },
      {});
  for (int i = 0; i < 4; ++i) {  // the executor would optimise in the second run
    ExpectSame(expected, Train([&](at::Tensor x) { return Recompute(call, x); }, {}));
  }
}

TEST(RecomputeTest, AnExceptionInTheSecondRunLeavesEverythingUsable) {
  auto block = Block();
  bool fail = true;
  int calls = 0;
  const auto call = [&](at::Tensor x) {
    const at::Tensor y = block->forward(x);
    if (++calls % 2 == 0 && fail) throw std::runtime_error("second run");
    return y.sin() * 2;
  };
  const auto region = [&](at::Tensor x) { return Recompute(call, x); };
  EXPECT_EQ(ErrorOf([&] { Train(region, block->parameters()); }), "second run");
  EXPECT_EQ(torch::autograd::Engine::get_default_engine().get_default_saved_variable_hooks(),
            nullptr);
  fail = false;
  ExpectSame(Train(call, block->parameters()), Train(region, block->parameters()));
  EXPECT_EQ(ErrorOf([&] {
              Recompute([](at::Tensor) -> at::Tensor { throw std::runtime_error("first run"); },
                        Values({2}));
            }),
            "first run");
  EXPECT_EQ(torch::autograd::Engine::get_default_engine().get_default_saved_variable_hooks(),
            nullptr);
}

TEST(RecomputeTest, RefusesASecondRunThatDiffers) {
  const auto error_of = [](bool early_stop, auto&& second) {
    int calls = 0;
    const at::Tensor x = Values({4}).requires_grad_();
    const auto call = [&](const at::Tensor& in) {
      return ++calls == 1 ? in.exp().sin() : second(in);
    };
    const at::Tensor y = Recompute(RecomputeOptions{.early_stop = early_stop}, call, x);
    return ErrorOf([&] { y.sum().backward(); });
  };
  using T = const at::Tensor&;
  EXPECT_THAT(error_of(true, [](T x) { return x.exp(); }),
              ::testing::HasSubstr("saved 2 tensors for backward in forward, and 1 when"));
  EXPECT_THAT(error_of(true, [](T x) { return x.slice(0, 1).exp().sin(); }),
              ::testing::HasSubstr("was Double [4] on cpu in forward and is Double [3] on cpu"));
  EXPECT_THAT(error_of(true, [](T x) { return x.to(at::kFloat).exp().sin(); }),
              ::testing::HasSubstr("is Float [4] on cpu"));
  EXPECT_THAT(error_of(false, [](T x) { return x.exp().sin().sin(); }),
              ::testing::HasSubstr("saved 2 tensors for backward in forward, and 3 when"));
}

TEST(RecomputeTest, RefusesWhatWasChangedInPlace) {
  const auto call = [](const at::Tensor& x) { return x.exp().sin(); };
  const at::Tensor x = Values({4}).requires_grad_();
  at::Tensor hidden = x * 1;
  const at::Tensor y = Recompute(call, hidden);
  hidden.mul_(2);
  EXPECT_THAT(ErrorOf([&] { y.sum().backward(); }), ::testing::HasSubstr("inplace operation"));

  at::Tensor weight = Values({4}).requires_grad_();
  const at::Tensor z = Recompute([&](const at::Tensor& in) { return in * weight; }, x);
  {
    const torch::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_THAT(ErrorOf([&] { z.sum().backward(); }), ::testing::HasSubstr("was changed in place"));

  const at::Tensor inside = Recompute(
      RecomputeOptions{.early_stop = false},
      [](const at::Tensor& in) {
        at::Tensor out = in.exp();
        return out.mul_(2);
      },
      x);
  EXPECT_THAT(ErrorOf([&] { inside.sum().backward(); }),
              ::testing::HasSubstr("was changed in place"));
}

TEST(RecomputeTest, InPlaceOperatorsInside) {
  torch::nn::Linear linear(6, 6);
  linear->to(at::kDouble);
  const auto call = [&](at::Tensor x) {
    at::Tensor y = linear->forward(x);
    y.relu_();
    y = linear->forward(y);
    y.narrow(1, 0, 3).tanh_();
    return y.sin();
  };
  ExpectSame(Train(call, linear->parameters()),
             Train([&](at::Tensor x) { return Recompute(call, x); }, linear->parameters()));
}

}  // namespace
}  // namespace medfusion::testing
