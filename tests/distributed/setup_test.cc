#include "medfusion/distributed/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <thread>

#include "medfusion/distributed/network_address.h"
#include "tests/testing/free_port.h"
#include "tests/testing/ranks.h"

namespace medfusion {
namespace {

using ::medfusion::testing::FreePort;
using ::testing::HasSubstr;

LaunchEnvironment Environment(int rank, int world_size, int port,
                              const std::string& addr = "127.0.0.1") {
  LaunchEnvironment env;
  env.rank = rank;
  env.world_size = world_size;
  env.master_addr = addr;
  env.master_port = port;
  env.source = "environment";
  return env;
}

DistributedOptions Timeout(int milliseconds) {
  DistributedOptions options;
  options.group.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

// Runs each function in a thread; what they returned, in order.
std::vector<absl::Status> RunAll(const std::vector<std::function<absl::Status()>>& ranks) {
  std::vector<absl::Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = ranks[i](); });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

// Connects over TCP and sums 1 over the ranks.
absl::Status ConnectAndCount(const LaunchEnvironment& env, const DistributedOptions& options) {
  auto group = ConnectProcessGroup(env, options);
  if (!group.ok()) return group.status();
  at::Tensor count = at::ones({1}, at::kLong);
  (*group)->AllReduce(count)->Wait();
  EXPECT_EQ(count.item<int64_t>(), env.world_size);
  EXPECT_EQ((*group)->RanksOnHostOf(0).size(), static_cast<size_t>(env.world_size));
  (*group)->Barrier();
  return absl::OkStatus();
}

void ExpectAllMeetAt(const std::string& addr) {
  const int port = FreePort(addr.find(':') != std::string::npos);
  std::vector<std::function<absl::Status()>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back([=] { return ConnectAndCount(Environment(r, 3, port, addr), Timeout(20000)); });
  }
  for (const absl::Status& status : RunAll(ranks)) EXPECT_TRUE(status.ok()) << status;
}

TEST(SetupTest, RanksMeetAtAnIPv4Address) { ExpectAllMeetAt("127.0.0.1"); }
TEST(SetupTest, RanksMeetAtAnotherLoopbackAddress) { ExpectAllMeetAt("127.0.0.2"); }
TEST(SetupTest, RanksMeetAtAnIPv6Address) { ExpectAllMeetAt("::1"); }
TEST(SetupTest, RanksMeetAtAName) { ExpectAllMeetAt("localhost"); }

TEST(SetupTest, AMissingRankIsNamedOnEveryRankThatCame) {
  const int port = FreePort();
  const auto results =
      RunAll({[=] { return ConnectAndCount(Environment(0, 4, port), Timeout(1500)); },
              [=] { return ConnectAndCount(Environment(2, 4, port), Timeout(1500)); }});
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ranks 1, 3 never came"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("MASTER_PORT="));
  }
}

TEST(SetupTest, TwoProcessesWithOneRankAreToldApartEverywhere) {
  const int port = FreePort();
  const auto connect = [=](int rank) {
    return [=] { return ConnectAndCount(Environment(rank, 3, port), Timeout(15000)); };
  };
  for (const absl::Status& status : RunAll({connect(0), connect(1), connect(1)})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("two processes claim RANK=1 (environment)"));
  }
}

TEST(SetupTest, WorldSizesThatDifferAreAnErrorEverywhere) {
  const int port = FreePort();
  const auto results =
      RunAll({[=] { return ConnectAndCount(Environment(0, 2, port), Timeout(15000)); },
              [=] { return ConnectAndCount(Environment(1, 3, port), Timeout(15000)); }});
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("WORLD_SIZE="));
    EXPECT_THAT(std::string(status.message()), HasSubstr("it must be the same"));
  }
}

TEST(SetupTest, ATakenPortIsNamed) {
  const auto taken = Listen(0, ResolveHost("127.0.0.1").value());
  ASSERT_TRUE(taken.ok());
  const int port = testing::PortOf(*taken);
  const absl::Status status = ConnectAndCount(Environment(0, 2, port), Timeout(5000));
  close(*taken);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("MASTER_PORT=" + std::to_string(port) +
                        " (environment) is in use by another process"));
}

TEST(SetupTest, AnAddressWhereNobodyListensIsNamedAtTheTimeout) {
  const int port = FreePort();
  const absl::Status status = ConnectAndCount(Environment(1, 2, port), Timeout(1200));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1 could not reach rank 0's store at MASTER_ADDR=127.0.0.1"));
}

TEST(SetupTest, AServerThatIsNoStoreEndsAtTheTimeout) {
  const auto silent = Listen(0, ResolveHost("127.0.0.1").value());
  ASSERT_TRUE(silent.ok());
  const absl::Status status =
      ConnectAndCount(Environment(1, 2, testing::PortOf(*silent)), Timeout(1000));
  close(*silent);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(SetupTest, ANameThatDoesNotResolveIsNamed) {
  const absl::Status status =
      ConnectAndCount(Environment(1, 2, 29500, "no-such-host.invalid"), Timeout(5000));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("MASTER_ADDR=no-such-host.invalid (environment) does not resolve"));
}

TEST(SetupTest, AnUnknownBackendListsTheLinkedOnes) {
  DistributedOptions options;
  options.backend = "mpi";
  const auto result = ConnectProcessGroup(LaunchEnvironment{}, options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("backend 'mpi' is not linked into this program; it has: gloo"));
}

TEST(SetupTest, ATimeoutMustBePositive) {
  EXPECT_THAT(std::string(ConnectProcessGroup(LaunchEnvironment{}, Timeout(0)).status().message()),
              HasSubstr("timeout=0 ms (options) must be positive"));
}

TEST(SetupTest, AloneTheProcessIsTheMainOne) {
  EXPECT_EQ(GetWorldSize(), 1);
  EXPECT_TRUE(IsMainProcess());
  EXPECT_TRUE(Barrier().ok());
  const auto [rank, local_rank, world_size] = SetupDistributed().value();
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(local_rank, 0);
  EXPECT_EQ(world_size, 1);
  EXPECT_EQ(SetupDistributed().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Barrier().ok());
  EXPECT_TRUE(CleanupDistributed().ok());
  EXPECT_TRUE(CleanupDistributed().ok());
  EXPECT_TRUE(SetupDistributed().ok());
  EXPECT_TRUE(CleanupDistributed().ok());
}

TEST(SetupTest, ThreadsAsRanksHaveTheirOwnDefaultGroup) {
  testing::RunRanks(3, [](ProcessGroup& group) {
    EXPECT_EQ(GetRank(), group.rank());
    EXPECT_EQ(GetLocalRank(), group.rank());
    EXPECT_EQ(GetWorldSize(), 3);
    EXPECT_EQ(IsMainProcess(), group.rank() == 0);
    EXPECT_TRUE(Barrier().ok());
  });
}

}  // namespace
}  // namespace medfusion
