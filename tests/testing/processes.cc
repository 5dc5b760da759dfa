#include "tests/testing/processes.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace medfusion::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kScenarioVariable[] = "MEDFUSION_TEST_SCENARIO";
constexpr milliseconds kPoll(10);

std::map<std::string, std::function<void()>>& Scenarios() {
  static auto* scenarios = new std::map<std::string, std::function<void()>>;
  return *scenarios;
}

// Runs before the first test, in every program that links this file.
class ScenarioRunner : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* name = std::getenv(kScenarioVariable);
    if (name == nullptr) return;
    int code = 0;
    try {
      Scenarios().at(name)();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    _exit(code);
  }
};

const auto* const registered = ::testing::AddGlobalTestEnvironment(new ScenarioRunner);

void Append(int fd, std::string& to) {
  char buffer[1 << 14];
  ssize_t count;
  while (fd >= 0 && (count = read(fd, buffer, sizeof(buffer))) > 0) {
    to.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

Scenario::Scenario(const std::string& name, std::function<void()> body) {
  Scenarios()[name] = std::move(body);
}

TestProcess TestProcess::Start(const ChildOptions& options) {
  auto child = ChildProcess::Start(options);
  if (!child.ok()) throw std::runtime_error(std::string(child.status().message()));
  return TestProcess(*std::move(child));
}

TestProcess TestProcess::StartScenario(
    const std::string& name, const std::map<std::string, std::optional<std::string>>& environment) {
  ChildOptions options;
  options.arguments = {"scenario"};
  options.environment = environment;
  options.environment[kScenarioVariable] = name;
  // The runner's reports are of the tests, not of what they start.
  for (const char* variable : {"XML_OUTPUT_FILE", "TEST_SHARD_STATUS_FILE", "TEST_TOTAL_SHARDS"}) {
    options.environment[variable] = std::nullopt;
  }
  return Start(options);
}

void TestProcess::Kill(int signal) { kill(child_.pid(), signal); }

void TestProcess::Read(milliseconds patience) {
  pollfd fds[] = {{child_.stdout_fd(), POLLIN, 0}, {child_.stderr_fd(), POLLIN, 0}};
  poll(fds, 2, static_cast<int>(patience.count()));
  Append(child_.stdout_fd(), out_);
  Append(child_.stderr_fd(), err_);
}

ProcessResult TestProcess::Wait(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  ProcessResult result;
  std::optional<ExitStatus> status;
  while (!(status = child_.Poll()).has_value()) {
    if (Clock::now() >= deadline && !result.timed_out) {
      result.timed_out = true;
      child_.Signal(SIGKILL);
    }
    Read(kPoll);
  }
  Read(milliseconds(0));
  result.status = *status;
  result.out = out_;
  result.err = err_;
  return result;
}

bool TestProcess::WaitFor(const std::string& text, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    const bool ended = child_.Poll().has_value();
    Read(ended ? milliseconds(0) : kPoll);
    if (out_.find(text) != std::string::npos || err_.find(text) != std::string::npos) return true;
    if (ended || Clock::now() >= deadline) return false;
  }
}

std::map<std::string, std::optional<std::string>> RankEnvironment(int rank, int world_size,
                                                                  int port) {
  return {{"RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", absl::StrCat(port)},
          {"OMP_NUM_THREADS", "1"}};
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

bool WaitUntilGone(pid_t pid, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (kill(pid, 0) == 0) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string number, name, state;
    if (!(file >> number >> name >> state) || state == "Z") return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::string TemporaryFolder() {
  struct Folders {
    std::vector<std::string> paths;
    ~Folders() {
      std::error_code ignored;
      for (const std::string& path : paths) std::filesystem::remove_all(path, ignored);
    }
  };
  static Folders folders;
  std::string path = (std::filesystem::temp_directory_path() / "medfusion_test_XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make " + path);
  folders.paths.push_back(path);
  return path;
}

}  // namespace medfusion::testing
