// FSDP on 1 to 4 ranks against one rank, without FSDP, on the joined batch: float64, within 1e-12;
// float32, losses within 1e-6 and parameters within 1e-5 of the largest, as for DDP.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

constexpr int kSteps = 6;
constexpr int kBatch = 12;  // joined; divides by 1, 2, 3 and 4
constexpr double kTolerance = 1e-12;
constexpr double kFloatLossTolerance = 1e-6, kFloatTolerance = 1e-5;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const NamedTensors&)>;

std::unique_ptr<torch::optim::Optimizer> Momentum(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  return std::make_unique<torch::optim::SGD>(
      tensors, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
}

std::unique_ptr<torch::optim::Optimizer> Adam(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  return std::make_unique<torch::optim::Adam>(tensors, torch::optim::AdamOptions(0.01));
}

// No decay for biases, by name.
std::unique_ptr<torch::optim::Optimizer> AdamWInGroups(const NamedTensors& parameters) {
  std::vector<at::Tensor> decayed, others;
  for (const auto& [name, tensor] : parameters) {
    (name.find("bias") == std::string::npos ? decayed : others).push_back(tensor);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(0.01).weight_decay(0.1)));
  groups.emplace_back(others, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(0.02).weight_decay(0)));
  return std::make_unique<torch::optim::AdamW>(std::move(groups));
}

struct Job {
  std::function<std::shared_ptr<Model>()> make = Seeded<Mlp>;
  MakeOptimizer optimizer = Momentum;
  bool tokens = false;
  int accumulate = 1;
  bool set_to_none = true;
  int forwards = 1;  // before one backward
  double clip_norm = 0;
  // FSDP's alone.
  ShardingStrategy strategy = ShardingStrategy::FULL_SHARD;
  int64_t min_num_params = 0;
  int replicas = 0;  // of HYBRID_SHARD's mesh
  bool transposed = false;
  bool no_sync = false;
  int prefetch = 1;
  at::ScalarType dtype = at::kDouble;
  double tolerance = kTolerance;
  double loss_tolerance = 0;  // tolerance, when 0

  std::shared_ptr<Model> MakeModel() const {
    auto model = make();
    if (dtype != at::kDouble) model->to(dtype);
    return model;
  }
};

struct Data {
  at::Tensor x;  // [steps, accumulate, batch, features]
  at::Tensor y;  // [steps, accumulate, batch, 1], or of 1 column per output by broadcast
};

Data MakeData(const Job& job) {
  auto generator = at::detail::createCPUGenerator(7);
  Data data;
  const std::vector<int64_t> sizes = {kSteps, job.accumulate, kBatch, kFeatures};
  data.x = job.tokens ? at::randint(0, kTokens, sizes, generator, at::kLong)
                      : at::randn(sizes, generator, at::kDouble);
  data.y = data.x.to(at::kDouble).sum(-1, true).sin().to(job.dtype);
  if (!job.tokens) data.x = data.x.to(job.dtype);
  return data;
}

struct Result {
  std::vector<double> losses;
  NamedTensors parameters;
};

// Trains on rows begin..end of each batch. `backward(last, loss)` calls backward.
template <typename Forward, typename Clip>
std::vector<double> Train(const Job& job, const Data& data, const NamedTensors& parameters,
                          int begin, int end, Forward&& forward,
                          const std::function<void(bool, at::Tensor)>& backward, Clip&& clip) {
  const auto optimizer = job.optimizer(parameters);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad(job.set_to_none);
    double sum = 0;
    for (int part = 0; part < job.accumulate; ++part) {
      const at::Tensor x = data.x[step][part].slice(0, begin, end);
      const at::Tensor y = data.y[step][part].slice(0, begin, end);
      at::Tensor loss;
      for (int pass = 0; pass < job.forwards; ++pass) {
        const at::Tensor term = (forward(pass == 0 ? x : x.flip(1)) - y).square().mean();
        loss = loss.defined() ? loss + term : term;
      }
      backward(part + 1 == job.accumulate, loss);
      sum += loss.item<double>();
    }
    if (job.clip_norm > 0) clip(job.clip_norm);
    optimizer->step();
    losses.push_back(sum);
  }
  return losses;
}

// Each distinct tensor once, under its first name, as FSDPWrapper lists them.
NamedTensors Distinct(const torch::nn::Module& module) {
  NamedTensors distinct;
  for (const auto& item : module.named_parameters()) {
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](const auto& other) { return other.second.is_same(item.value()); })) {
      distinct.emplace_back(item.key(), item.value());
    }
  }
  return distinct;
}

Result TrainAlone(const Job& job, const Data& data) {
  const auto model = job.MakeModel();
  Result result{{}, Distinct(*model)};
  result.losses = Train(
      job, data, result.parameters, 0, kBatch,
      [&](const at::Tensor& x) { return model->forward(x); },
      [](bool, const at::Tensor& loss) { loss.backward(); },
      [&](double norm) {
        // torch::nn::utils::clip_grad_norm_ adds 1e-6 to the norm.
        double squares = 0;
        for (const auto& [name, p] : result.parameters) {
          if (p.grad().defined()) squares += p.grad().square().sum().item<double>();
        }
        const double factor = std::min(1.0, norm / std::sqrt(squares));
        for (const auto& [name, p] : result.parameters) {
          if (p.grad().defined()) p.grad().mul_(factor);
        }
      });
  return result;
}

FSDPOptions OptionsOf(const Job& job, ProcessGroup& group) {
  FSDPOptions options;
  options.sharding_strategy = job.strategy;
  options.min_num_params = job.min_num_params;
  options.forward_prefetch = options.backward_prefetch = job.prefetch;
  options.max_resident_units = 1 + std::max(job.prefetch, 1);
  options.max_gradients_in_flight = job.prefetch / 2;
  if (job.replicas > 0) {
    options.mesh =
        DeviceMesh::Create(group.shared_from_this(), job.replicas, group.size() / job.replicas)
            .value();
    if (job.transposed) options.mesh = options.mesh->Transposed();
  }
  return options;
}

void ExpectParity(int world, const Job& job) {
  const Data data = MakeData(job);
  const Result alone = TrainAlone(job, data);
  RunRanks(world, [&](ProcessGroup& group) {
    FSDPWrapper<Model> model(job.MakeModel(), OptionsOf(job, group));
    const int rows = kBatch / world;
    const std::vector<double> losses = Train(
        job, data, model->named_parameters(), group.rank() * rows, (group.rank() + 1) * rows,
        [&](const at::Tensor& x) { return model->forward(x); },
        [&](bool last, const at::Tensor& loss) {
          if (job.no_sync && !last) {
            const auto guard = model->no_sync();
            loss.backward();
          } else {
            loss.backward();
          }
        },
        [&](double norm) { EXPECT_TRUE(model->ClipGradNorm(norm).finite); });
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor loss = at::full({1}, losses[step], at::kDouble);
      group.AllReduce(loss, ReduceOp::kAverage)->Wait();
      const double tolerance = job.loss_tolerance > 0 ? job.loss_tolerance : job.tolerance;
      EXPECT_NEAR(loss.item<double>(), alone.losses[step], tolerance * alone.losses[0])
          << "step " << step;
    }
    const FullParameters scope(model, /*writeback=*/false);
    const NamedTensors parameters = Distinct(*model->module());
    ASSERT_EQ(parameters.size(), alone.parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& expected = alone.parameters[i].second;
      const double scale = std::max(1.0, expected.abs().max().item<double>());
      EXPECT_LE((parameters[i].second - expected).abs().max().item<double>(), job.tolerance * scale)
          << parameters[i].first;
    }
  });
}

class FsdpParityTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpParityTest, ::testing::Values(1, 2, 3, 4));

TEST_P(FsdpParityTest, SgdWithMomentum) { ExpectParity(GetParam(), {}); }

TEST_P(FsdpParityTest, AdamWWithParameterGroups) {
  ExpectParity(GetParam(), {.optimizer = AdamWInGroups});
}

TEST_P(FsdpParityTest, Float32UnderMomentumAdamAndAdamW) {
  for (const MakeOptimizer& optimizer : {Momentum, Adam, AdamWInGroups}) {
    ExpectParity(GetParam(), {.optimizer = optimizer,
                              .dtype = at::kFloat,
                              .tolerance = kFloatTolerance,
                              .loss_tolerance = kFloatLossTolerance});
  }
}

TEST_P(FsdpParityTest, Adam) { ExpectParity(GetParam(), {.optimizer = Adam}); }

TEST_P(FsdpParityTest, ShardGradOp) {
  ExpectParity(GetParam(), {.strategy = ShardingStrategy::SHARD_GRAD_OP});
}

TEST_P(FsdpParityTest, NoShard) {
  ExpectParity(GetParam(), {.strategy = ShardingStrategy::NO_SHARD});
}

TEST_P(FsdpParityTest, HybridShardOnOneHostIsFullShard) {
  ExpectParity(GetParam(), {.strategy = ShardingStrategy::HYBRID_SHARD});
}

TEST(FsdpHybridParityTest, TwoReplicasOfTwoShards) {
  ExpectParity(4, {.strategy = ShardingStrategy::HYBRID_SHARD, .replicas = 2});
}

TEST(FsdpHybridParityTest, ShardsAlongTheOtherDimensionOfTheMesh) {
  ExpectParity(4, {.optimizer = AdamWInGroups,
                   .strategy = ShardingStrategy::HYBRID_SHARD,
                   .replicas = 2,
                   .transposed = true});
}

TEST(FsdpHybridParityTest, ThreeReplicasOfOneShard) {
  ExpectParity(3, {.strategy = ShardingStrategy::HYBRID_SHARD, .replicas = 3});
}

TEST_P(FsdpParityTest, NothingAheadOrSeveralUnitsAhead) {
  ExpectParity(GetParam(), {.make = Seeded<Text>, .tokens = true, .prefetch = 0});
  ExpectParity(GetParam(), {.make = Seeded<Text>, .tokens = true, .prefetch = 3});
}

TEST_P(FsdpParityTest, OneUnitForTheWholeModel) {
  ExpectParity(GetParam(), {.min_num_params = 1'000'000});
}

TEST_P(FsdpParityTest, EmbeddingTransformerAndLstm) {
  ExpectParity(GetParam(), {.make = Seeded<Text>, .optimizer = AdamWInGroups, .tokens = true});
}

TEST_P(FsdpParityTest, ConvolutionLayerNormAndGru) {
  ExpectParity(GetParam(), {.make = Seeded<Signal>});
}

TEST_P(FsdpParityTest, WeightsTiedAcrossUnits) {
  ExpectParity(GetParam(), {.make = Seeded<TiedDecoder>, .tokens = true});
}

TEST_P(FsdpParityTest, ParametersSmallerThanTheWorldAndUsedSeveralTimes) {
  ExpectParity(GetParam(), {.make = Seeded<Tiny>, .optimizer = AdamWInGroups});
}

TEST_P(FsdpParityTest, FrozenParametersAmongTrainedOnes) {
  ExpectParity(GetParam(), {.make = Seeded<Frozen>, .optimizer = AdamWInGroups});
}

TEST_P(FsdpParityTest, ParametersThatSomeOrAllRanksDoNotUse) {
  for (const MakeOptimizer& optimizer : {Momentum, Adam, AdamWInGroups}) {
    ExpectParity(GetParam(),
                 {.make = Seeded<Branches>, .optimizer = optimizer, .min_num_params = 1'000'000});
  }
}

TEST_P(FsdpParityTest, TwoForwardsBeforeOneBackward) { ExpectParity(GetParam(), {.forwards = 2}); }

TEST_P(FsdpParityTest, AccumulationIntoTheShards) { ExpectParity(GetParam(), {.accumulate = 3}); }

TEST_P(FsdpParityTest, AccumulationWithoutCommunication) {
  ExpectParity(GetParam(), {.accumulate = 3, .no_sync = true});
}

TEST_P(FsdpParityTest, GradientsSetToZeroInsteadOfNone) {
  ExpectParity(GetParam(), {.accumulate = 2, .set_to_none = false});
}

TEST_P(FsdpParityTest, ClippedGradients) { ExpectParity(GetParam(), {.clip_norm = 0.1}); }

TEST_P(FsdpParityTest, SeveralDtypesInOneModule) {
  // The reference sums the float32 layer's gradient over the joined batch, FSDP over parts of it.
  ExpectParity(GetParam(), {.make = Seeded<TwoDtypes>, .tolerance = 1e-5});
}

}  // namespace
}  // namespace medfusion::testing
