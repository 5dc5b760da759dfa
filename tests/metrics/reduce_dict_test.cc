#include "medfusion/metrics/reduce_dict.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>

#include "medfusion/distributed/process_group.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::RunRanks;
using ::medfusion::testing::RunRanksThatMayFail;
using ::medfusion::testing::TestGroupOptions;

TEST(ReduceDictTest, AveragesOverTheDefaultGroup) {
  RunRanks(2, [](ProcessGroup& group) {
    const double rank = group.rank();
    const MetricMap metrics = {{"loss", torch::tensor(0.5 + rank)}, {"acc", 0.5 + rank / 4.0}};
    const MetricMap average = ReduceDict(metrics).value();
    EXPECT_EQ(average.at("loss").AsDouble(), 1.0);
    EXPECT_EQ(average.at("acc").AsDouble(), 0.625);
  });
}

TEST(ReduceDictTest, WithoutAGroupTheProcessIsTheOnlyRank) {
  EXPECT_EQ(ReduceDict({{"n", 3}}).value().at("n").AsDouble(), 3.0);
  EXPECT_TRUE(ReduceDict({}).value().empty());
}

TEST(ReduceDictTest, TakesOneCollectiveAndTheSameBitsReachEveryRank) {
  std::mt19937 random(10);
  for (int world = 1; world <= 4; ++world) {
    std::vector<MetricMap> ranks(static_cast<size_t>(world));
    for (MetricMap& metrics : ranks) {
      for (int i = 0; i < 30; ++i) {
        metrics["metric" + std::to_string(i)] = std::ldexp(static_cast<double>(random()), i - 40);
      }
    }
    std::vector<MetricMap> results(static_cast<size_t>(world));
    RunRanks(world, [&](ProcessGroup& group) {
      const int64_t before = group.traffic().collectives;
      results[group.rank()] = ReduceDict(group, ranks[group.rank()]).value();
      EXPECT_EQ(group.traffic().collectives - before, world == 1 ? 0 : 1);
    });
    for (const auto& [key, value] : results[0]) {
      long double sum = 0.0L;
      for (const MetricMap& metrics : ranks) sum += metrics.at(key).AsDouble();
      EXPECT_DOUBLE_EQ(value.AsDouble(), static_cast<double>(sum / world));
      for (const MetricMap& other : results) EXPECT_EQ(other.at(key).AsDouble(), value.AsDouble());
    }
  }
}

TEST(ReduceDictTest, LargeTensorsTakeASecondCollective) {
  RunRanks(3, [](ProcessGroup& group) {
    const int64_t before = group.traffic().collectives;
    ReduceDictOptions sum;
    sum.reduction = MetricReduction::kSum;
    const at::Tensor mine = torch::full({100, 100}, group.rank() + 1, torch::kLong);
    const MetricMap result = ReduceDict(group, {{"confusion", mine}}, sum).value();
    EXPECT_TRUE(result.at("confusion").AsTensor().equal(torch::full({100, 100}, 6, torch::kLong)));
    EXPECT_EQ(group.traffic().collectives - before, 2);
  });
}

TEST(ReduceDictTest, DifferentKeysAreTheSameErrorOnAllRanksAndTheGroupGoesOn) {
  std::vector<std::string> errors(3);
  RunRanks(3, [&](ProcessGroup& group) {
    MetricMap metrics = {{"loss", 1.0}};
    if (group.rank() == 1) metrics["dice"] = 0.5;
    const absl::StatusOr<MetricMap> result = ReduceDict(group, metrics);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    errors[group.rank()] = std::string(result.status().message());
    EXPECT_EQ(ReduceDict(group, {{"loss", 2.0}}).value().at("loss").AsDouble(), 2.0);
  });
  EXPECT_NE(errors[0].find("\"dice\" is mean of double on rank 1, missing on ranks 0, 2"),
            std::string::npos)
      << errors[0];
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(ReduceDictTest, WhatOneRankCannotSendIsAnErrorOnAll) {
  RunRanks(2, [](ProcessGroup& group) {
    // A sparse tensor makes LibTorch throw while the values are read.
    const at::Tensor dense = torch::ones({2});
    const at::Tensor mine = group.rank() == 1 ? dense.to_sparse() : dense;
    const absl::StatusOr<MetricMap> result = ReduceDict(group, {{"x", mine}});
    EXPECT_NE(result.status().message().find("rank 1: "), std::string_view::npos)
        << result.status();
  });
}

TEST(ReduceDictTest, AMissingRankIsAStatusNotAnException) {
  GroupOptions options = TestGroupOptions();
  options.timeout = std::chrono::seconds(1);
  absl::StatusCode code = absl::StatusCode::kOk;
  RunRanksThatMayFail(
      2,
      [&](ProcessGroup& group) {
        if (group.rank() == 0) code = ReduceDict(group, {{"x", 1.0}}).status().code();
      },
      options);
  EXPECT_EQ(code, absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace medfusion
