// The train program's job, over threads.
#include "medfusion/train/fusion_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "medfusion/base/atomic_file.h"
#include "tests/testing/processes.h"
#include "tests/testing/ranks.h"
#include "tests/train/fusion_jobs.h"

namespace medfusion {
namespace {

using ::testing::HasSubstr;

// What it says on each rank.
std::vector<std::string> ErrorsOf(int ranks,
                                  const std::function<void(int rank, FusionJobOptions&)>& change) {
  FusionJobOptions base = Options(8, 1);
  std::vector<std::string> errors(ranks);
  testing::RunRanks(ranks, [&](ProcessGroup& group) {
    FusionJobOptions options = base;
    change(group.rank(), options);
    const auto report = RunFusionJob(group.shared_from_this(), options);
    errors[group.rank()] = std::string(report.status().message());
  });
  return errors;
}

std::string CheckpointBytes(const FusionJobOptions& options, const std::string& name) {
  return ReadWholeFile(options.output_dir + "/checkpoints/" + name).value();
}

TEST(FusionJobTest, OneTwoAndThreeRanksReachTheSameResult) {
  FusionJobOptions one = Options(30, 6);
  one.strategy.name = "none";
  RunJob(1, one);
  EXPECT_GE(Metrics(one)["test"]["auroc"].get<double>(), 0.98);
  const auto expected = History(one);
  ASSERT_EQ(expected.size(), 6u);
  for (const int ranks : {2, 3}) {
    const FusionJobOptions other = Options(30 / ranks, 6);
    RunJob(ranks, other);
    const auto history = History(other);
    ASSERT_EQ(history.size(), expected.size());
    for (size_t i = 0; i < history.size(); ++i) {
      for (const char* loss : {"train_loss", "val_loss"}) {
        EXPECT_NEAR(history[i][loss].get<double>(), expected[i][loss].get<double>(), 1e-6);
      }
      EXPECT_EQ(history[i]["samples"], 398);
    }
    EXPECT_EQ(Metrics(other)["test"], Metrics(one)["test"]);
    EXPECT_EQ(Metrics(other)["splits"], Metrics(one)["splits"]);
    EXPECT_EQ(Metrics(other)["world_size"], ranks);
  }
}

TEST(FusionJobTest, AResumedRunEndsBitForBitAsTheUninterruptedOne) {
  const FusionJobOptions whole = Options(16, 6);
  RunJob(2, whole);
  FusionJobOptions parts = Options(16, 3);  // its last epoch is saved, though 2 does not divide it
  RunJob(2, parts);
  parts.train.epochs = 6;
  parts.train.resume = true;
  RunJob(2, parts);
  EXPECT_EQ(History(parts), History(whole));
  EXPECT_EQ(Metrics(parts), Metrics(whole));
  const std::string last = "epoch_000006.pt";
  // Histories in it hold times: compare the tensors.
  const auto tensors = [&](const FusionJobOptions& options) {
    const std::string bytes = CheckpointBytes(options, last);
    return torch::pickle_load({bytes.begin(), bytes.end()})
        .toGenericDict()
        .at("tensors")
        .toGenericDict();
  };
  const auto a = tensors(whole), b = tensors(parts);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a.size(), 60u);
  for (const auto& entry : a) {
    EXPECT_TRUE(torch::equal(entry.value().toTensor(), b.at(entry.key()).toTensor()))
        << entry.key().toStringRef();
  }
}

TEST(FusionJobTest, ARunIsTakenUpByAnotherNumberOfRanks) {
  FusionJobOptions options = Options(16, 3);
  RunJob(2, options);
  options.train.resume = true;
  options.train.epochs = 5;
  options.train.batch_size = 32;
  options.strategy.name = "none";
  RunJob(1, options);
  const FusionJobOptions whole = Options(16, 5);
  RunJob(2, whole);
  EXPECT_EQ(Metrics(options)["test"], Metrics(whole)["test"]);
  EXPECT_EQ(History(options).size(), 5u);
}

TEST(FusionJobTest, ANewRunForgetsTheCheckpointsOfTheOneBefore) {
  FusionJobOptions options = Options(16, 4);
  RunJob(1, options);
  options.train.epochs = 2;
  RunJob(1, options);
  EXPECT_TRUE(std::filesystem::exists(options.output_dir + "/checkpoints/epoch_000002.pt"));
  EXPECT_FALSE(std::filesystem::exists(options.output_dir + "/checkpoints/epoch_000004.pt"));
}

TEST(FusionJobTest, ABrokenCheckpointIsNamedOnAllRanks) {
  FusionJobOptions options = Options(16, 2);
  RunJob(2, options);
  const std::string path = options.output_dir + "/checkpoints/epoch_000002.pt";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  options.train.resume = true;
  for (const std::string& error : ErrorsOf(2, [&](int, FusionJobOptions& o) { o = options; })) {
    EXPECT_THAT(error, HasSubstr(path + " is no whole checkpoint"));
  }
}

TEST(FusionJobTest, AnotherSeedDoesNotTakeUpTheCheckpoint) {
  FusionJobOptions options = Options(16, 2);
  RunJob(1, options);
  options.train.resume = true;
  options.train.seed = 5;
  for (const std::string& error : ErrorsOf(1, [&](int, FusionJobOptions& o) { o = options; })) {
    EXPECT_THAT(error, HasSubstr("seed=5, but the checkpoint has seed=0"));
  }
}

TEST(FusionJobTest, AFileThatOneRankCannotReadEndsAll) {
  const auto errors = ErrorsOf(3, [](int rank, FusionJobOptions& options) {
    if (rank == 2) options.data = "missing.csv";
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 2: missing.csv: cannot be read"));
  }
}

TEST(FusionJobTest, RanksThatWereStartedDifferentlyAreTold) {
  const auto errors = ErrorsOf(2, [](int rank, FusionJobOptions& options) {
    if (rank == 1) options.train.batch_size = 9;
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("batch_size=9 on rank 1, but 8 on rank 0"));
  }
}

TEST(FusionJobTest, AFolderThatCannotBeMadeEndsAll) {
  const std::string file = testing::TemporaryFolder() + "/file";
  std::ofstream(file) << "in the way";
  const auto errors =
      ErrorsOf(2, [&](int, FusionJobOptions& options) { options.output_dir = file + "/out"; });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0: cannot make the folder " + file + "/out"));
  }
}

}  // namespace
}  // namespace medfusion
