// The train program's job under every strategy: the same result as one rank, and resumption.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/train/fusion_jobs.h"

namespace medfusion {
namespace {

class ShardingTest : public ::testing::TestWithParam<ShardingStrategy> {};

TEST_P(ShardingTest, AnyNumberOfRanksReachesTheResultOfOneRankAlone) {
  FusionJobOptions one = Options(60, 2);
  one.strategy.name = "none";
  RunJob(1, one);
  const auto expected = History(one);
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    FusionJobOptions other = Options(60 / ranks, 2);
    other.strategy = Sharded(GetParam());
    RunJob(ranks, other);
    const auto history = History(other);
    ASSERT_EQ(history.size(), expected.size());
    for (size_t i = 0; i < history.size(); ++i) {
      for (const char* loss : {"train_loss", "val_loss"}) {
        EXPECT_NEAR(history[i][loss].get<double>(), expected[i][loss].get<double>(), 1e-6);
      }
    }
    EXPECT_EQ(Metrics(other)["test"], Metrics(one)["test"]);
    EXPECT_EQ(Metrics(other)["strategy"], "fsdp");
  }
}

TEST(StrategiesTest, AShardedRunIsResumedBitForBitAndByOtherStrategies) {
  FusionJobOptions whole = Options(20, 2);
  whole.strategy = Sharded(ShardingStrategy::FULL_SHARD);
  RunJob(3, whole);
  FusionJobOptions parts = whole;
  parts.output_dir = testing::TemporaryFolder() + "/out";
  parts.train.epochs = 1;
  RunJob(3, parts);
  FusionJobOptions hybrid = parts, ddp = parts;
  hybrid.strategy = Sharded(ShardingStrategy::SHARD_GRAD_OP);
  ddp.strategy = {.name = "ddp"};
  ddp.train.batch_size = 30;
  for (auto [next, ranks] : {std::pair{&parts, 3}, {&hybrid, 3}, {&ddp, 2}}) {
    const std::string start = next->output_dir;
    next->output_dir = testing::TemporaryFolder() + "/out";
    std::filesystem::create_directories(next->output_dir + "/checkpoints");
    std::filesystem::copy(start + "/checkpoints/epoch_000001.pt",
                          next->output_dir + "/checkpoints/epoch_000001.pt");
    next->train.epochs = 2;
    next->train.resume = true;
    RunJob(ranks, *next);
    EXPECT_EQ(Metrics(*next)["test"], Metrics(whole)["test"]);
    const auto history = History(*next), expected = History(whole);
    ASSERT_EQ(history.size(), expected.size());
    for (size_t i = 0; i < history.size(); ++i) {
      EXPECT_NEAR(history[i]["val_loss"].get<double>(), expected[i]["val_loss"].get<double>(),
                  next == &parts ? 0 : 1e-6);
    }
  }
}

TEST(StrategiesTest, ActivationCheckpointingChangesNoBitOfTheResult) {
  for (const char* name : {"ddp", "fsdp"}) {
    SCOPED_TRACE(name);
    FusionJobOptions plain = Options(30, 2), recomputed = Options(30, 2);
    plain.strategy = Sharded(ShardingStrategy::FULL_SHARD);
    plain.strategy.name = name;
    recomputed.strategy = plain.strategy;
    recomputed.activation_checkpointing = true;
    RunJob(2, plain);
    RunJob(2, recomputed);
    EXPECT_EQ(History(recomputed), History(plain));
    EXPECT_EQ(Metrics(recomputed), Metrics(plain));
  }
}

TEST(StrategiesTest, LowPrecisionLearnsUnderEveryStrategy) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const auto& [name, ranks] : {std::pair{"none", 1}, {"ddp", 2}, {"fsdp", 2}}) {
      SCOPED_TRACE(::testing::Message() << name << " in " << PrecisionName(precision));
      FusionJobOptions options = Options(60 / ranks, 6);
      options.strategy.name = name;
      options.strategy.mixed_precision = precision;
      RunJob(ranks, options);
      EXPECT_GE(Metrics(options)["test"]["auroc"].get<double>(), 0.97);
      EXPECT_EQ(Metrics(options)["mixed_precision"], PrecisionName(precision));
    }
  }
}

// The first steps overflow, which halves the scale until they do not, on all ranks alike.
TEST(StrategiesTest, AResumedFloat16RunKeepsItsLossScale) {
  FusionJobOptions whole = Options(30, 2);
  whole.strategy = Sharded(ShardingStrategy::FULL_SHARD);
  whole.strategy.mixed_precision = Precision::kFp16;
  RunJob(2, whole);
  FusionJobOptions parts = whole;
  parts.output_dir = testing::TemporaryFolder() + "/out";
  parts.train.epochs = 1;
  RunJob(2, parts);
  parts.train.epochs = 2;
  parts.train.resume = true;
  RunJob(2, parts);
  EXPECT_EQ(History(parts), History(whole));
  EXPECT_EQ(Metrics(parts), Metrics(whole));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ShardingTest,
                         ::testing::Values(ShardingStrategy::FULL_SHARD,
                                           ShardingStrategy::SHARD_GRAD_OP,
                                           ShardingStrategy::NO_SHARD,
                                           ShardingStrategy::HYBRID_SHARD),
                         [](const auto& info) { return ShardingStrategyName(info.param); });

}  // namespace
}  // namespace medfusion
