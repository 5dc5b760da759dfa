// Ranks that end without a word: the others get an error, and whatever still runs or waits in
// the background, every process ends with the status that it chose.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "medfusion/distributed/setup.h"
#include "tests/testing/free_port.h"
#include "tests/testing/processes.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::ProcessResult;
using ::medfusion::testing::RunRanks;
using ::medfusion::testing::Scenario;
using ::medfusion::testing::TestProcess;
using ::testing::HasSubstr;

constexpr int kWorldSize = 4;
constexpr int kStatus = 3;  // distinct from what a failed or killed process gives

// Destroyed while the process ends, after the groups' other owners.
std::vector<WorkPtr> left_works;
std::shared_ptr<ProcessGroup> left_group;

const Scenario kLeave("leave", [] {
  DistributedOptions options;
  options.backend = "gloo";
  options.group.timeout = std::chrono::seconds(30);
  const int rank = SetupDistributed(options).value().rank;
  const auto group = DefaultGroup();
  left_group = group->Split(rank % 2);
  if (rank == kWorldSize - 1) std::exit(kStatus);
  try {
    for (int64_t numel : {1, 1 << 20}) left_works.push_back(group->AllReduce(at::ones({numel})));
    while (true) group->Barrier();
  } catch (const CollectiveError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(kStatus);
});

TEST(AbruptExitTest, ARankThatLeavesIsAnErrorOnTheOthersAndAllEndAsTheyChose) {
  for (int round = 0; round < 3; ++round) {
    const int port = testing::FreePort();
    std::vector<TestProcess> ranks;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      ranks.push_back(
          TestProcess::StartScenario("leave", testing::RankEnvironment(rank, kWorldSize, port)));
    }
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const ProcessResult result = ranks[rank].Wait();
      EXPECT_FALSE(result.timed_out) << rank;
      EXPECT_EQ(result.status.signal, 0) << rank << ": " << result.err;
      EXPECT_EQ(result.status.code, kStatus) << rank << ": " << result.err;
      if (rank != kWorldSize - 1) EXPECT_THAT(result.err, HasSubstr("on group 'world'")) << rank;
    }
  }
}

int WriteToNobody() {
  int ends[2];
  if (pipe(ends) != 0) return errno;
  close(ends[0]);
  const bool written = write(ends[1], "x", 1) == 1;
  const int error = errno;
  close(ends[1]);
  return written ? 0 : error;
}

TEST(AbruptExitTest, AClosedConnectionEndsNoProcessThatHasAGroup) {
  signal(SIGPIPE, SIG_DFL);
  RunRanks(2, [](ProcessGroup&) {});
  EXPECT_EQ(WriteToNobody(), EPIPE);
}

TEST(AbruptExitTest, AHandlerOfTheProgramsOwnStays) {
  static volatile std::sig_atomic_t caught = 0;
  signal(SIGPIPE, [](int) { caught = 1; });
  RunRanks(2, [](ProcessGroup&) {});
  EXPECT_EQ(WriteToNobody(), EPIPE);
  EXPECT_EQ(caught, 1);
  signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace medfusion
