// Real processes as ranks, for what threads cannot show: signals, crashes, launchers.
//
// A process is always a fresh program. A test's own ranks are the test program again, which then
// runs a named scenario instead of the tests:
//
//   const Scenario kCrash("crash", [] { std::abort(); });
//   TEST(..) {
//     TestProcess process = TestProcess::StartScenario("crash");
//     EXPECT_EQ(process.Wait().status.signal, SIGABRT);
//   }
#ifndef MEDFUSION_TESTS_TESTING_PROCESSES_H_
#define MEDFUSION_TESTS_TESTING_PROCESSES_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "medfusion/launch/child_process.h"

namespace medfusion::testing {

// Registers `body` under `name`; make it a global constant. The process exits with 0 when `body`
// returns, with 1 when it throws.
class Scenario {
 public:
  Scenario(const std::string& name, std::function<void()> body);
};

struct ProcessResult {
  ExitStatus status;
  std::string out;  // what it wrote so far
  std::string err;
  bool timed_out = false;
};

// A child and what it writes. Killed with its process group when this object goes. Use it from the
// thread that made it.
class TestProcess {
 public:
  // Throws std::runtime_error when it cannot be started.
  static TestProcess Start(const ChildOptions& options);
  static TestProcess StartScenario(
      const std::string& name,
      const std::map<std::string, std::optional<std::string>>& environment = {});

  pid_t pid() const { return child_.pid(); }
  // To the process alone, not to its group.
  void Kill(int signal);

  // Until it has ended; after `limit` it is killed and timed_out set.
  ProcessResult Wait(std::chrono::milliseconds limit = std::chrono::seconds(60));

  // Until its standard output or error contains `text`; false when it ended or `limit` passed.
  bool WaitFor(const std::string& text, std::chrono::milliseconds limit = std::chrono::seconds(60));

  const std::string& out() const { return out_; }

 private:
  explicit TestProcess(ChildProcess child) : child_(std::move(child)) {}
  void Read(std::chrono::milliseconds patience);

  ChildProcess child_;
  std::string out_;
  std::string err_;
};

// The environment of rank `rank` of a job that was started by hand.
std::map<std::string, std::optional<std::string>> RankEnvironment(int rank, int world_size,
                                                                  int port);

// Process numbers of `pid`'s children that have not been reaped.
std::vector<pid_t> ChildrenOf(pid_t pid);

// Waits until the process is gone (or a zombie); false when it is still there after `limit`.
bool WaitUntilGone(pid_t pid, std::chrono::milliseconds limit = std::chrono::seconds(20));

// A new empty folder, removed with its content at the end of the process.
std::string TemporaryFolder();

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TESTING_PROCESSES_H_
