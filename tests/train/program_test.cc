#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/testing/free_port.h"
#include "tests/train/train_program.h"

namespace medfusion {
namespace {

using ::testing::HasSubstr;
using testing::ProcessResult;
using testing::StartTrain;
using testing::TemporaryFolder;
using testing::TestProcess;

const std::vector<std::string> kTwoRanks = {"--nproc_per_node=2"};

TEST(TrainProgramTest, WithoutMoreItLearnsTheDataOnTwoRanksAndSaysSo) {
  const std::string folder = TemporaryFolder();
  const ProcessResult result = StartTrain(folder, kTwoRanks).Wait();
  ASSERT_TRUE(result.status.ok()) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("ddp on 2 ranks"));
  EXPECT_THAT(result.out, HasSubstr("\nepoch   1/40  loss "));
  EXPECT_THAT(result.out, HasSubstr("\ntest (epoch "));
  const nlohmann::json metrics = testing::ReadMetrics(folder);
  EXPECT_EQ(metrics["strategy"], "ddp");
  EXPECT_EQ(metrics["world_size"], 2);
  EXPECT_EQ(metrics["seed"], 0);
  EXPECT_EQ(metrics["splits"]["train"], 398);
  EXPECT_GE(metrics["test"]["auroc"].get<double>(), 0.98);
  for (const char* name : {"accuracy", "sensitivity", "specificity", "f1"}) {
    EXPECT_GT(metrics["test"][name].get<double>(), 0.85) << name;
  }
  EXPECT_EQ(testing::ReadHistory(folder).size(), metrics["epochs"].get<size_t>());
}

TEST(TrainProgramTest, ShardedRanksInFloat16LearnTheDataAndGoOn) {
  const std::string folder = TemporaryFolder();
  std::vector<std::string> flags = {"--nproc_per_node=2",     "--strategy=fsdp",
                                    "--min_num_params=600",   "--sharding_strategy=SHARD_GRAD_OP",
                                    "--mixed_precision=fp16", "--epochs=2",
                                    "--batch_size=30"};
  const ProcessResult first = StartTrain(folder, flags).Wait();
  ASSERT_TRUE(first.status.ok()) << first.out << first.err;
  EXPECT_THAT(first.out, HasSubstr("fsdp SHARD_GRAD_OP in fp16 on 2 ranks"));
  flags.push_back("--resume");
  flags.push_back("--epochs=5");
  const ProcessResult second = StartTrain(folder, flags).Wait();
  ASSERT_TRUE(second.status.ok()) << second.out << second.err;
  EXPECT_THAT(second.out, HasSubstr("resumed after epoch 2"));
  const nlohmann::json metrics = testing::ReadMetrics(folder);
  EXPECT_EQ(metrics["strategy"], "fsdp");
  EXPECT_EQ(metrics["mixed_precision"], "fp16");
  EXPECT_GE(metrics["test"]["auroc"].get<double>(), 0.95);
}

TEST(TrainProgramTest, TwoShellsGiveWhatTheSpawnedRunGives) {
  const std::string spawned = TemporaryFolder(), shells = TemporaryFolder();
  const std::string epochs = "--epochs=3";
  ASSERT_TRUE(StartTrain(spawned, {"--nproc_per_node=2", epochs}).Wait().status.ok());
  const int port = testing::FreePort();
  TestProcess one = StartTrain(shells, {epochs}, testing::RankEnvironment(1, 2, port));
  TestProcess zero = StartTrain(shells, {epochs}, testing::RankEnvironment(0, 2, port));
  const ProcessResult a = zero.Wait(), b = one.Wait();
  ASSERT_TRUE(a.status.ok()) << a.err;
  ASSERT_TRUE(b.status.ok()) << b.err;
  EXPECT_EQ(testing::ReadMetrics(spawned), testing::ReadMetrics(shells));
  EXPECT_EQ(testing::ReadHistory(spawned), testing::ReadHistory(shells));
}

TEST(TrainProgramTest, CtrlCEndsAllRanksWithExitCode130) {
  TestProcess process =
      StartTrain(TemporaryFolder(), {"--nproc_per_node=2", "--epochs=100000", "--patience=0"});
  ASSERT_TRUE(process.WaitFor("epoch   1/"));
  const std::vector<pid_t> ranks = testing::ChildrenOf(process.pid());
  ASSERT_EQ(ranks.size(), 2u);
  process.Kill(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status.code, 130);
  for (const pid_t rank : ranks) EXPECT_TRUE(testing::WaitUntilGone(rank));
}

TEST(TrainProgramTest, ADivergingRunStopsOnAllRanksAndNamesTheStep) {
  const ProcessResult result =
      StartTrain(TemporaryFolder(), {"--nproc_per_node=2", "--learning_rate=1e30"}).Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status.code, 9);  // FailedPrecondition
  EXPECT_THAT(result.err, HasSubstr("on rank 0"));
  EXPECT_THAT(result.err, HasSubstr("on rank 1"));
  EXPECT_THAT(result.err, HasSubstr("at epoch 1, step "));
}

TEST(TrainProgramTest, WhatItCannotUseIsNamed) {
  struct Case {
    std::string flag, message;
  };
  const std::string folder = TemporaryFolder();
  std::ofstream(folder + "/broken.csv") << "mean_a,error_a,worst_a,diagnosis\n1,2,x,benign\n";
  for (const Case& wrong : {
           Case{"--strategy=zero", "strategy=zero is unknown; expected one of none, ddp, fsdp"},
           Case{"--sharding_strategy=HALF", "expected one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD"},
           Case{"--sharding_strategy=NO_SHARD", "is for strategy=fsdp, not none"},
           Case{"--min_num_params=-1", "min_num_params=-1 is out of range"},
           Case{"--mixed_precision=fp8", "expected none, bf16 or fp16"},
           Case{"--nproc_per_node=many", "'many' is no number of ranks"},
           Case{"--no_such_flag=1", "no_such_flag"},
           Case{"surprise", "unexpected argument 'surprise'"},
           Case{"--data=missing.csv", "missing.csv: cannot be read"},
           Case{"--data=broken.csv", "broken.csv:2"},
           Case{"--target=outcome", "outcome"},
           Case{"--backend=pigeon", "backend 'pigeon' is not linked into this program"},
           Case{"--output_dir=broken.csv/out", "cannot make the folder broken.csv/out"},
       }) {
    const ProcessResult result =
        StartTrain(folder, {"--epochs=1", "--strategy=none", wrong.flag}).Wait();
    EXPECT_FALSE(result.status.ok()) << wrong.flag;
    EXPECT_THAT(result.err, HasSubstr(wrong.message));
  }
}

TEST(TrainProgramTest, HelpListsItsOwnFlagsAlone) {
  const ProcessResult result = StartTrain(TemporaryFolder(), {"--help"}).Wait();
  EXPECT_TRUE(result.status.ok());
  for (const char* flag : {"--strategy", "--nproc_per_node", "--resume", "--flagfile"}) {
    EXPECT_THAT(result.out, HasSubstr(flag));
  }
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("stderrthreshold")));
}

TEST(TrainProgramTest, FlagsComeFromAFileAndPathsFromTheCallersFolder) {
  const std::string folder = TemporaryFolder();
  std::ofstream(folder + "/flags") << "--epochs=1\n--strategy=none\n--output_dir=here\n";
  const std::string elsewhere = TemporaryFolder();
  const ProcessResult result =
      StartTrain(elsewhere, {"--flagfile=flags"}, {{"BUILD_WORKING_DIRECTORY", folder}}).Wait();
  ASSERT_TRUE(result.status.ok()) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/here/metrics.json"));
}

}  // namespace
}  // namespace medfusion
