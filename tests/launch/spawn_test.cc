#include "medfusion/launch/spawn.h"

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "medfusion/distributed/network_address.h"
#include "medfusion/launch/error_file.h"
#include "medfusion/launch/held_port.h"
#include "medfusion/launch/rank_count.h"
#include "tests/testing/processes.h"

namespace medfusion {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProcessResult;
using testing::Scenario;
using testing::TestProcess;

int Rank() { return std::atoi(std::getenv("RANK")); }

// Waits for a signal that ends it.
[[noreturn]] void WaitForEver() {
  while (true) pause();
}

// Starts `ranks` processes that run the scenario named by RANK_SCENARIO.
const Scenario kSupervise("supervise", [] {
  const int ranks = std::atoi(std::getenv("RANKS"));
  SpawnOptions options{.num_ranks = ranks,
                       .arguments = {"rank"},
                       .environment = {{"MEDFUSION_TEST_SCENARIO", std::getenv("RANK_SCENARIO")}},
                       .prefix_output = std::getenv("PREFIX") != nullptr,
                       .grace = std::chrono::seconds(1)};
  if (std::getenv("PROGRAM") != nullptr) options.program = std::getenv("PROGRAM");
  _exit(SpawnRanks(options));
});

TestProcess Supervise(const std::string& scenario, int ranks = 3,
                      std::map<std::string, std::optional<std::string>> environment = {}) {
  environment["RANK_SCENARIO"] = scenario;
  environment["RANKS"] = absl::StrCat(ranks);
  return TestProcess::StartScenario("supervise", environment);
}

const Scenario kReport("report", [] {
  for (const char* name : {"LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"}) {
    std::printf("%d %s=%s\n", Rank(), name, std::getenv(name));
  }
  std::printf("%d omp %d\n", Rank(), std::getenv("OMP_NUM_THREADS") != nullptr);
});

const Scenario kLongLines("long_lines", [] {
  const std::string line(5000, static_cast<char>('a' + Rank()));
  for (int i = 0; i < 200; ++i) std::printf("%s\n", line.c_str());
});

const Scenario kRankOneFails("rank_one_fails", [] {
  if (Rank() != 1) WaitForEver();
  WriteErrorFile("the scanner is on fire");
  std::fflush(nullptr);
  _exit(7);
});

const Scenario kRankTwoComplains("rank_two_complains", [] {
  if (Rank() != 2) WaitForEver();
  std::fprintf(stderr, "no paper in tray 2\n");
  std::fflush(nullptr);
  _exit(9);
});

const Scenario kRankOneDies("rank_one_dies", [] {
  if (Rank() == 1) raise(SIGKILL);
  WaitForEver();
});

const Scenario kStubborn("stubborn", [] {
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  std::printf("rank %d waits\n", Rank());
  std::fflush(nullptr);
  if (Rank() == 1 && std::getenv("FAIL") != nullptr) _exit(5);
  WaitForEver();
});

const Scenario kPolite("polite", [] {
  std::printf("rank %d waits\n", Rank());
  std::fflush(nullptr);
  WaitForEver();
});

TEST(SpawnTest, RanksGetTorchrunsVariablesAndTheProgramEndsWithZero) {
  const ProcessResult result = Supervise("report").Wait();
  EXPECT_TRUE(result.status.ok()) << result.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(rank, " LOCAL_RANK=", rank, "\n")));
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(rank, " WORLD_SIZE=3\n")));
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(rank, " LOCAL_WORLD_SIZE=3\n")));
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(rank, " MASTER_ADDR=127.0.0.1\n")));
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(rank, " omp 1\n")));
  }
}

TEST(SpawnTest, LinesOfSeveralRanksStayWholeAndCarryTheirRank) {
  const ProcessResult result = Supervise("long_lines", 3, {{"PREFIX", "1"}}).Wait();
  EXPECT_TRUE(result.status.ok());
  int lines[3] = {};
  size_t begin = 0;
  while (begin < result.out.size()) {
    const size_t end = result.out.find('\n', begin);
    const std::string line = result.out.substr(begin, end - begin);
    begin = end + 1;
    if (line.size() < 100) continue;  // GoogleTest's own
    const int rank = line[1] - '0';
    ASSERT_TRUE(rank >= 0 && rank < 3) << line.substr(0, 20);
    EXPECT_EQ(line,
              absl::StrCat("[", rank, "] ", std::string(5000, static_cast<char>('a' + rank))));
    ++lines[rank];
  }
  for (const int count : lines) EXPECT_EQ(count, 200);
}

TEST(SpawnTest, AFailedRankEndsTheOthersAndIsNamedWithWhatItReported) {
  const ProcessResult result = Supervise("rank_one_fails").Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status.code, 7);
  EXPECT_THAT(result.err, ContainsRegex("rank 1 of 3 \\(process [0-9]+\\) exited with code 7; the "
                                        "other ranks were ended: the scanner is on fire\n$"));
}

TEST(SpawnTest, AFailedRankThatReportedNothingIsQuotedByItsLastLines) {
  const ProcessResult result = Supervise("rank_two_complains").Wait();
  EXPECT_EQ(result.status.code, 9);
  EXPECT_THAT(result.err, ContainsRegex("rank 2 of 3 .* exited with code 9.*: no paper in tray 2"));
}

TEST(SpawnTest, AKilledRankEndsTheOthersAndIsNamedWithItsSignal) {
  const ProcessResult result = Supervise("rank_one_dies").Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status.code, 128 + SIGKILL);
  EXPECT_THAT(result.err, ContainsRegex("rank 1 of 3 .* was killed by signal 9 \\(Killed\\)"));
}

TEST(SpawnTest, RanksThatIgnoreSigtermAreKilledAfterTheGracePeriod) {
  const ProcessResult result = Supervise("stubborn", 3, {{"FAIL", "1"}}).Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status.code, 5);
}

TEST(SpawnTest, SignalsReachEveryRankAndBecomeTheExitCode) {
  for (const int signal : {SIGINT, SIGTERM}) {
    TestProcess process = Supervise("polite");
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(process.WaitFor(absl::StrCat("rank ", rank, " waits")));
    }
    const std::vector<pid_t> ranks = testing::ChildrenOf(process.pid());
    EXPECT_EQ(ranks.size(), 3u);
    process.Kill(signal);
    const ProcessResult result = process.Wait();
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status.code, 128 + signal);
    for (const pid_t rank : ranks) EXPECT_TRUE(testing::WaitUntilGone(rank));
  }
}

TEST(SpawnTest, ASecondSignalKillsRanksThatIgnoreTheFirst) {
  TestProcess process = Supervise("stubborn");
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(process.WaitFor(absl::StrCat("rank ", rank, " waits")));
  }
  process.Kill(SIGINT);
  process.Kill(SIGTERM);
  const ProcessResult result = process.Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_GT(result.status.code, 128);
}

TEST(SpawnTest, RanksDieWithTheirLauncher) {
  TestProcess process = Supervise("stubborn");
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(process.WaitFor(absl::StrCat("rank ", rank, " waits")));
  }
  const std::vector<pid_t> ranks = testing::ChildrenOf(process.pid());
  ASSERT_EQ(ranks.size(), 3u);
  process.Kill(SIGKILL);
  process.Wait();
  for (const pid_t rank : ranks) EXPECT_TRUE(testing::WaitUntilGone(rank));
}

TEST(SpawnTest, AProgramThatIsNotThereIsNamed) {
  const ProcessResult result = Supervise("report", 2, {{"PROGRAM", "/no/such/program"}}).Wait();
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot run /no/such/program: No such file or directory"));
}

TEST(HeldPortTest, RankZeroMayListenAtItWhileOthersAreNotGivenIt) {
  const HeldPort held = HeldPort::Find().value();
  for (int i = 0; i < 50; ++i) EXPECT_NE(HeldPort::Find()->port(), held.port());
  const auto socket = Listen(held.port(), ResolveHost("127.0.0.1").value());
  ASSERT_TRUE(socket.ok()) << socket.status();
  close(*socket);
}

TEST(RankCountTest, TakesAutoAndNumbersAndNamesAnythingElse) {
  EXPECT_EQ(ParseRankCount("3").value(), 3);
  EXPECT_GE(ParseRankCount("auto").value(), 1);
  for (const char* text : {"0", "-1", "two", "", "1025", "2.5"}) {
    const auto count = ParseRankCount(text);
    ASSERT_FALSE(count.ok()) << text;
    EXPECT_THAT(std::string(count.status().message()), HasSubstr(absl::StrCat("'", text, "'")));
  }
}

TEST(ErrorFileTest, ReadsTorchrunsFormatAndNothingElse) {
  const std::string path = testing::TemporaryFolder() + "/error.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadErrorFile(path);
  };
  EXPECT_EQ(read(R"({"message": {"message": "ValueError: no", "extraInfo":
                    {"py_callstack": "...", "timestamp": "1700000000"}}})"),
            "ValueError: no");
  EXPECT_EQ(read(R"({"message": "short"})"), "short");
  for (const char* text : {"", "{", "[]", R"({"message": 3})", R"({"message": {"message": 3}})"}) {
    EXPECT_EQ(read(text), "") << text;
  }
  EXPECT_EQ(ReadErrorFile(path + ".missing"), "");
}

TEST(ErrorFileTest, WhatARankWritesIsReadBack) {
  const std::string path = testing::TemporaryFolder() + "/error.json";
  setenv(kErrorFileVariable, path.c_str(), 1);
  WriteErrorFile("broken \"byte\": \xff");
  unsetenv(kErrorFileVariable);
  EXPECT_THAT(ReadErrorFile(path), HasSubstr("broken \"byte\": "));
}

}  // namespace
}  // namespace medfusion
