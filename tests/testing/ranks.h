// Many ranks in one process: a thread for each, over a store in memory and Gloo on the loopback
// interface.
//
//   RunRanks(4, [](ProcessGroup& group) {
//     EXPECT_EQ(group.size(), 4);
//   });
//
// Fast enough to be every test's default; what needs real processes (signals, crashes, launchers)
// uses tests/testing/processes.h.
#ifndef MEDFUSION_TESTS_TESTING_RANKS_H_
#define MEDFUSION_TESTS_TESTING_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion::testing {

// A group that fails quickly when a test goes wrong.
GroupOptions TestGroupOptions();

// Runs `body` once per rank, each in its own thread with its own group, which is also that thread's
// default group. LibTorch computes with one thread. An exception on any rank fails the test, with
// the rank and the text; gtest assertions may be used on all ranks. Returns when all ranks ended;
// the timeout of `options` bounds every wait.
void RunRanks(int world_size, const std::function<void(ProcessGroup&)>& body,
              const GroupOptions& options = TestGroupOptions());

// The same over another backend than Gloo, with a GPU for each rank.
void RunRanksOn(const std::string& backend, int world_size,
                const std::function<void(ProcessGroup&)>& body);

// The same, for tests of failures: what each rank threw, empty where it did not.
std::vector<std::string> RunRanksThatMayFail(int world_size,
                                             const std::function<void(ProcessGroup&)>& body,
                                             const GroupOptions& options = TestGroupOptions());

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TESTING_RANKS_H_
