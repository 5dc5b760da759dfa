#include "medfusion/launch/child_process.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

extern char** environ;

namespace medfusion {
namespace {

void CloseIfOpen(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1;
  int write = -1;

  ~Pipe() {
    CloseIfOpen(read);
    CloseIfOpen(write);
  }
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
};

// The child's environment, made before the fork: after it nothing may allocate.
std::vector<std::string> MergedEnvironment(
    const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) merged.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value.has_value()) merged.push_back(absl::StrCat(name, "=", *value));
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// All that the child needs between fork and exec.
struct Plan {
  const char* program;
  char** arguments;
  char** environment;
  const char* working_directory;  // or null
  int stdout_fd;                  // or -1 to share
  int stderr_fd;
  int error_fd;  // closed by a successful exec
  pid_t parent;
};

struct StartError {
  int number = 0;
  bool in_directory = false;
};

[[noreturn]] void Fail(const Plan& plan, bool in_directory) {
  const StartError error{errno, in_directory};
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

// Only async-signal-safe calls: other threads may have held locks at the fork.
[[noreturn]] void RunChild(const Plan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // it died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGPIPE}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  if (plan.stdout_fd >= 0) dup2(plan.stdout_fd, STDOUT_FILENO);
  if (plan.stderr_fd >= 0) dup2(plan.stderr_fd, STDERR_FILENO);
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) Fail(plan, true);
  execve(plan.program, plan.arguments, plan.environment);
  Fail(plan, false);
}

// What the child could not do; number 0 when it runs.
StartError AwaitExec(int fd) {
  StartError error;
  ssize_t count;
  do {
    count = read(fd, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(error) ? error : StartError{};
}

absl::Status StartStatus(const std::string& what, int number) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(number));
  if (number == ENOENT || number == ENOTDIR) return absl::NotFoundError(text);
  if (number == EACCES || number == ENOEXEC) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal == 0) return absl::StrCat("exited with code ", code);
  return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  const std::string program = options.program.empty() ? "/proc/self/exe" : options.program;
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  std::vector<char*> argument_pointers = Pointers(arguments);
  std::vector<char*> environment_pointers = Pointers(environment);
  Pipe out, err, error;
  if ((options.pipe_stdout && !out.Open()) || (options.pipe_stderr && !err.Open()) ||
      !error.Open()) {
    return StartStatus("cannot make a pipe", errno);
  }
  const Plan plan{program.c_str(),
                  argument_pointers.data(),
                  environment_pointers.data(),
                  options.working_directory.empty() ? nullptr : options.working_directory.c_str(),
                  out.write,
                  err.write,
                  error.write,
                  getpid()};
  const pid_t pid = fork();
  if (pid < 0) return StartStatus("cannot start a process", errno);
  if (pid == 0) RunChild(plan);
  setpgid(pid, pid);  // in both processes, so that it is done whichever goes on first
  CloseIfOpen(error.write);
  const StartError failed = AwaitExec(error.read);
  if (failed.number != 0) {
    waitpid(pid, nullptr, 0);
    return StartStatus(failed.in_directory
                           ? absl::StrCat("cannot go to folder ", options.working_directory)
                           : absl::StrCat("cannot run ", program),
                       failed.number);
  }
  for (const int fd : {out.read, err.read}) {
    if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return ChildProcess(pid, std::exchange(out.read, -1), std::exchange(err.read, -1));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      stdout_fd_(std::exchange(other.stdout_fd_, -1)),
      stderr_fd_(std::exchange(other.stderr_fd_, -1)),
      status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !status_.has_value()) {
    Signal(SIGKILL);
    Reap(/*wait=*/true);
  }
  CloseStdout();
  CloseStderr();
}

void ChildProcess::CloseStdout() { CloseIfOpen(stdout_fd_); }
void ChildProcess::CloseStderr() { CloseIfOpen(stderr_fd_); }

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !status_.has_value()) kill(-pid_, signal);
}

std::optional<ExitStatus> ChildProcess::Poll() { return Reap(/*wait=*/false); }

std::optional<ExitStatus> ChildProcess::Reap(bool wait) {
  if (status_.has_value()) return status_;
  siginfo_t info{};
  int result;
  do {
    result =
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG));
  } while (result != 0 && errno == EINTR);
  if (result != 0 || info.si_pid != pid_) return std::nullopt;
  // While the child is a zombie its number, and so the group's, cannot be another process's.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  status_ =
      WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
  return status_;
}

}  // namespace medfusion
