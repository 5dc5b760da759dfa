// DDP and FSDP with recomputation on 1 to 4 ranks against one rank without, on the joined batch:
// float64, within 1e-12.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "medfusion/ddp/ddp.h"
#include "medfusion/fsdp/fsdp.h"
#include "medfusion/recompute/recompute.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

constexpr int kSteps = 6;
constexpr int kBatch = 12;  // joined; divides by 1, 2, 3 and 4
constexpr int kFeatures = 6;
constexpr double kTolerance = 1e-12;

// `shared` is used in two regions and outside of both; a frozen layer and a nested region besides.
class Net : public torch::nn::Module {
 public:
  explicit Net(bool recompute) : recompute_(recompute) {
    first_ = register_module("first", torch::nn::Linear(kFeatures, 8));
    shared_ = register_module("shared", torch::nn::Linear(8, 8));
    frozen_ = register_module("frozen", torch::nn::Linear(8, 8));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    last_ = register_module("last", torch::nn::Linear(8, 1));
    frozen_->weight.requires_grad_(false);
  }

  at::Tensor forward(at::Tensor x) {
    const auto one = [this](const at::Tensor& in) {
      return torch::tanh(shared_->forward(torch::tanh(first_->forward(in)))).sin();
    };
    const auto inner = [this](const at::Tensor& in) {
      return torch::gelu(frozen_->forward(norm_->forward(in))).sin();
    };
    const auto two = [this, inner](const at::Tensor& in, const at::Tensor& skip) {
      return torch::tanh(shared_->forward(Maybe(inner, in) + skip)).exp();
    };
    const at::Tensor hidden = Maybe(one, x);
    return last_->forward(shared_->forward(Maybe(two, hidden.sin(), hidden)));
  }

 private:
  template <typename Function, typename... Arguments>
  at::Tensor Maybe(const Function& function, const Arguments&... arguments) const {
    return recompute_ ? Recompute(function, arguments...) : function(arguments...);
  }

  const bool recompute_;
  torch::nn::Linear first_{nullptr}, shared_{nullptr}, frozen_{nullptr}, last_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

std::shared_ptr<Net> MakeNet(bool recompute) {
  auto net = std::make_shared<Net>(recompute);
  auto generator = at::detail::createCPUGenerator(5);
  net->to(at::kDouble);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& p : net->parameters()) {
    p.copy_(torch::randn(p.sizes(), generator, at::kDouble) * 0.4);
  }
  return net;
}

template <typename Forward, typename Backward>
void Train(std::vector<at::Tensor> parameters, int accumulate, int rank, int world,
           Forward&& forward, Backward&& backward) {
  parameters.erase(std::remove_if(parameters.begin(), parameters.end(),
                                  [](const at::Tensor& p) { return !p.requires_grad(); }),
                   parameters.end());
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.002).momentum(0.9));
  auto generator = at::detail::createCPUGenerator(7);
  const int rows = kBatch / world;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < accumulate; ++part) {
      const at::Tensor all = torch::randn({kBatch, kFeatures}, generator, at::kDouble);
      const at::Tensor x = all.slice(0, rank * rows, (rank + 1) * rows);
      const at::Tensor loss = (forward(x) - x.sum(1, true).sin()).square().mean();
      backward(part + 1 == accumulate, loss);
    }
    optimizer.step();
  }
}

std::vector<at::Tensor> TrainAlone(int accumulate) {
  const auto net = MakeNet(false);
  Train(
      net->parameters(), accumulate, 0, 1, [&](const at::Tensor& x) { return net->forward(x); },
      [](bool, const at::Tensor& loss) { loss.backward(); });
  return net->parameters();
}

void ExpectNear(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), kTolerance) << i;
  }
}

class RecomputeParityTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, RecomputeParityTest, ::testing::Values(1, 2, 3, 4));

TEST_P(RecomputeParityTest, Ddp) {
  for (const int accumulate : {1, 3}) {
    const auto alone = TrainAlone(accumulate);
    RunRanks(GetParam(), [&](ProcessGroup& group) {
      const auto net = MakeNet(true);
      DDPWrapper<Net> model(net);
      Train(
          net->parameters(), accumulate, group.rank(), group.size(),
          [&](const at::Tensor& x) { return model->forward(x); },
          [&](bool last, const at::Tensor& loss) {
            if (last) return loss.backward();
            const auto guard = model->no_sync();
            loss.backward();
          });
      ExpectNear(net->parameters(), alone);
    });
  }
}

void ExpectFsdpParity(int world, ShardingStrategy strategy, int64_t min_num_params, int accumulate,
                      bool no_sync) {
  const auto alone = TrainAlone(accumulate);
  RunRanks(world, [&](ProcessGroup& group) {
    FSDPOptions options;
    options.sharding_strategy = strategy;
    options.min_num_params = min_num_params;
    const auto net = MakeNet(true);
    FSDPWrapper<Net> model(net, options);
    Train(
        model->parameters(), accumulate, group.rank(), world,
        [&](const at::Tensor& x) { return model->forward(x); },
        [&](bool last, const at::Tensor& loss) {
          if (last || !no_sync) return loss.backward();
          const auto guard = model->no_sync();
          loss.backward();
        });
    const FullParameters scope(model, /*writeback=*/false);
    ExpectNear(net->parameters(), alone);
  });
}

TEST_P(RecomputeParityTest, FullShard) {
  ExpectFsdpParity(GetParam(), ShardingStrategy::FULL_SHARD, 0, 1, false);
  ExpectFsdpParity(GetParam(), ShardingStrategy::FULL_SHARD, 1'000'000, 1, false);
}

TEST_P(RecomputeParityTest, ShardGradOp) {
  ExpectFsdpParity(GetParam(), ShardingStrategy::SHARD_GRAD_OP, 0, 1, false);
}

TEST_P(RecomputeParityTest, FsdpAccumulation) {
  ExpectFsdpParity(GetParam(), ShardingStrategy::FULL_SHARD, 0, 3, false);
  ExpectFsdpParity(GetParam(), ShardingStrategy::SHARD_GRAD_OP, 0, 3, true);
}

}  // namespace
}  // namespace medfusion::testing
