#include "medfusion/launch/spawn.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "medfusion/launch/child_process.h"
#include "medfusion/launch/error_file.h"
#include "medfusion/launch/held_port.h"
#include "medfusion/launch/line_relay.h"
#include "medfusion/launch/rank_count.h"
#include "medfusion/launch/signal_queue.h"

namespace medfusion {
namespace {

using Clock = std::chrono::steady_clock;

// A folder for the ranks' error files, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "medfusion_XXXXXX").string();
    if (error || mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Empty when the folder could not be made: ranks then report on standard error alone.
  std::string ErrorFile(int rank) const {
    return path_.empty() ? "" : absl::StrCat(path_, "/rank_", rank, ".json");
  }

 private:
  std::string path_;
};

struct Rank {
  ChildProcess process;
  LineRelay out;
  LineRelay err;
  std::optional<ExitStatus> ended;
};

class Supervisor {
 public:
  explicit Supervisor(const SpawnOptions& options) : options_(options) {}

  int Run() {
    const absl::Status started = StartAll();
    if (!started.ok()) {
      // The destructor of each rank that runs already ends it.
      std::fprintf(stderr, "cannot start %d ranks: %s\n", options_.num_ranks,
                   std::string(started.message()).c_str());
      return 1;
    }
    while (running_ > 0) {
      Await();
      for (const int signal : signals_.Take()) OnSignal(signal);
      Reap();
      if (deadline_.has_value() && Clock::now() >= *deadline_) SignalAll(SIGKILL);
    }
    for (Rank& rank : ranks_) {
      Relay(rank);
      rank.out.Finish();
      rank.err.Finish();
    }
    return Report();
  }

 private:
  absl::Status StartAll();
  std::map<std::string, std::optional<std::string>> Environment(int rank, int port) const;
  void Await();
  void Relay(Rank& rank);
  void Reap();
  void OnSignal(int signal);
  void SignalAll(int signal);
  int Report() const;

  const SpawnOptions& options_;
  SignalQueue signals_;
  ScratchFolder scratch_;
  std::optional<HeldPort> port_;
  std::vector<Rank> ranks_;
  int running_ = 0;
  int stop_signal_ = 0;                        // that was sent to this process
  int failed_rank_ = -1;                       // the first
  std::optional<Clock::time_point> deadline_;  // for the ranks to have ended
};

absl::Status Supervisor::StartAll() {
  auto port = HeldPort::Find();
  if (!port.ok()) return port.status();
  port_.emplace(*std::move(port));
  ranks_.reserve(static_cast<size_t>(options_.num_ranks));
  for (int r = 0; r < options_.num_ranks; ++r) {
    ChildOptions child;
    child.program = options_.program;
    child.arguments = options_.arguments;
    child.environment = Environment(r, port_->port());
    child.pipe_stdout = options_.prefix_output || r > 0;
    auto process = ChildProcess::Start(child);
    if (!process.ok()) return process.status();
    const std::string prefix = options_.prefix_output ? absl::StrCat("[", r, "] ") : "";
    ranks_.push_back({*std::move(process), LineRelay(STDOUT_FILENO, prefix),
                      LineRelay(STDERR_FILENO, prefix), std::nullopt});
    ++running_;
  }
  return absl::OkStatus();
}

std::map<std::string, std::optional<std::string>> Supervisor::Environment(int rank,
                                                                          int port) const {
  const std::string size = std::to_string(options_.num_ranks);
  std::map<std::string, std::optional<std::string>> environment = {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", size},
      {"LOCAL_WORLD_SIZE", size},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {kErrorFileVariable, scratch_.ErrorFile(rank)},
      // Of a torchrun around this process, whose job is not this one.
      {"TORCHELASTIC_RUN_ID", std::nullopt},
      {"TORCHELASTIC_USE_AGENT_STORE", std::nullopt},
  };
  if (getenv("OMP_NUM_THREADS") == nullptr) {
    environment["OMP_NUM_THREADS"] = std::to_string(std::max(1, NumCores() / options_.num_ranks));
  }
  for (const auto& [name, value] : options_.environment) environment[name] = value;
  return environment;
}

// Sleeps until a signal, output, or the deadline.
void Supervisor::Await() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    fds.push_back({rank.process.stdout_fd(), POLLIN, 0});  // -1 is passed over
    fds.push_back({rank.process.stderr_fd(), POLLIN, 0});
  }
  int timeout = -1;
  if (deadline_.has_value()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now());
    timeout = static_cast<int>(std::max<int64_t>(1, left.count() + 1));
  }
  poll(fds.data(), fds.size(), timeout);
  for (Rank& rank : ranks_) Relay(rank);
}

void Supervisor::Relay(Rank& rank) {
  if (rank.process.stdout_fd() >= 0 && !rank.out.Drain(rank.process.stdout_fd())) {
    rank.process.CloseStdout();
  }
  if (rank.process.stderr_fd() >= 0 && !rank.err.Drain(rank.process.stderr_fd())) {
    rank.process.CloseStderr();
  }
}

void Supervisor::Reap() {
  int failed = -1;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (rank.ended.has_value()) continue;
    rank.ended = rank.process.Poll();
    if (!rank.ended.has_value()) continue;
    --running_;
    // Of several at once, one that was killed: the others ended because they missed it.
    const bool better =
        failed < 0 || (rank.ended->signal != 0 && ranks_[failed].ended->signal == 0);
    if (!rank.ended->ok() && better) failed = static_cast<int>(r);
  }
  if (failed < 0 || failed_rank_ >= 0 || stop_signal_ != 0) return;
  failed_rank_ = failed;
  deadline_ = Clock::now() + options_.grace;
  SignalAll(SIGTERM);
}

void Supervisor::OnSignal(int signal) {
  if (stop_signal_ != 0) {  // asked twice: no more patience
    SignalAll(SIGKILL);
    return;
  }
  stop_signal_ = signal;
  deadline_ = Clock::now() + options_.grace;
  SignalAll(signal);
}

void Supervisor::SignalAll(int signal) {
  for (Rank& rank : ranks_) rank.process.Signal(signal);
}

int Supervisor::Report() const {
  if (failed_rank_ >= 0) {
    const Rank& rank = ranks_[failed_rank_];
    std::string error = ReadErrorFile(scratch_.ErrorFile(failed_rank_));
    if (error.empty()) error = rank.err.Tail();
    std::fprintf(stderr, "rank %d of %d (process %d) %s%s%s\n", failed_rank_, options_.num_ranks,
                 static_cast<int>(rank.process.pid()), rank.ended->ToString().c_str(),
                 options_.num_ranks > 1 ? "; the other ranks were ended" : "",
                 error.empty() ? "" : (": " + error).c_str());
    return rank.ended->ShellCode();
  }
  if (stop_signal_ != 0) {
    std::fprintf(stderr, "ended all %d ranks on signal %d (%s)\n", options_.num_ranks, stop_signal_,
                 strsignal(stop_signal_));
    return 128 + stop_signal_;
  }
  return 0;
}

}  // namespace

int SpawnRanks(const SpawnOptions& options) { return Supervisor(options).Run(); }

}  // namespace medfusion
