#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/train/train_program.h"

namespace medfusion {
namespace {

using ::testing::ContainsRegex;
using testing::ProcessResult;
using testing::StartTrain;
using testing::TemporaryFolder;
using testing::TestProcess;

const std::vector<std::string> kEndless = {"--nproc_per_node=2", "--epochs=100000", "--patience=0"};

pid_t ProcessOfRank(const TestProcess& process, int rank) {
  for (const pid_t child : testing::ChildrenOf(process.pid())) {
    const std::string environment =
        ReadWholeFile("/proc/" + std::to_string(child) + "/environ").value();
    const std::string entry = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
    if (environment.find(entry) != std::string::npos) return child;
  }
  return -1;
}

TEST(TrainProgramChaosTest, AKilledRankEndsTheOthersAndIsNamed) {
  for (const int rank : {0, 1}) {
    TestProcess process = StartTrain(TemporaryFolder(), kEndless);
    ASSERT_TRUE(process.WaitFor("epoch   2/"));
    const std::vector<pid_t> ranks = testing::ChildrenOf(process.pid());
    ASSERT_EQ(ranks.size(), 2u);
    const pid_t victim = ProcessOfRank(process, rank);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    const ProcessResult result = process.Wait(std::chrono::seconds(30));
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status.code, 128 + SIGKILL);
    EXPECT_THAT(result.err,
                ContainsRegex("rank " + std::to_string(rank) + " of 2 .* was killed by signal 9"));
    for (const pid_t other : ranks) EXPECT_TRUE(testing::WaitUntilGone(other));
  }
}

TEST(TrainProgramChaosTest, RanksDieWithAKilledLauncher) {
  TestProcess process = StartTrain(TemporaryFolder(), kEndless);
  ASSERT_TRUE(process.WaitFor("epoch   1/"));
  const std::vector<pid_t> ranks = testing::ChildrenOf(process.pid());
  ASSERT_EQ(ranks.size(), 2u);
  process.Kill(SIGKILL);
  process.Wait();
  for (const pid_t rank : ranks) EXPECT_TRUE(testing::WaitUntilGone(rank));
}

TEST(TrainProgramChaosTest, ARunThatWasKilledGoesOnAndEndsAsIfItHadNotBeen) {
  const std::vector<std::string> flags = {"--nproc_per_node=2", "--epochs=12", "--patience=0",
                                          "--save_interval=2"};
  const std::string whole = TemporaryFolder(), killed = TemporaryFolder();
  ASSERT_TRUE(StartTrain(whole, flags).Wait().status.ok());
  {
    TestProcess process = StartTrain(killed, flags);
    ASSERT_TRUE(process.WaitFor("epoch   5/"));
    process.Kill(SIGKILL);
    process.Wait();
  }
  std::vector<std::string> resumed = flags;
  resumed.push_back("--resume");
  const ProcessResult result = StartTrain(killed, resumed).Wait();
  ASSERT_TRUE(result.status.ok()) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("resumed after epoch [4-9]"));
  EXPECT_THAT(result.out, ::testing::Not(::testing::HasSubstr("epoch   4/")));
  EXPECT_EQ(testing::ReadMetrics(killed), testing::ReadMetrics(whole));
  EXPECT_EQ(testing::ReadHistory(killed), testing::ReadHistory(whole));
}

}  // namespace
}  // namespace medfusion
