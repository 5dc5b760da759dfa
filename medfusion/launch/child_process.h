// One child process: a fresh program in a process group of its own that never outlives this one.
#ifndef MEDFUSION_LAUNCH_CHILD_PROCESS_H_
#define MEDFUSION_LAUNCH_CHILD_PROCESS_H_

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace medfusion {

struct ChildOptions {
  // The program's path; empty means this process's own (/proc/self/exe).
  std::string program;
  // All arguments, the name in front.
  std::vector<std::string> arguments;
  // Set in the child on top of this process's environment; nullopt takes a variable away.
  std::map<std::string, std::optional<std::string>> environment;
  // Empty: this process's.
  std::string working_directory;
  // Whether the stream comes through a pipe to this process or is shared with it. Standard input is
  // always empty: several ranks cannot share one.
  bool pipe_stdout = true;
  bool pipe_stderr = true;
};

// How a process ended.
struct ExitStatus {
  int code = 0;    // when signal is 0
  int signal = 0;  // that killed it, or 0

  bool ok() const { return code == 0 && signal == 0; }
  // As a shell reports it: the code, or 128 + signal.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  // "exited with code 3", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

// Not thread safe. Use it from the thread that started it, which must outlive the child: the kernel
// kills the child when that thread ends (PR_SET_PDEATHSIG), so that nothing is left behind even
// when this process is killed.
class ChildProcess {
 public:
  // Forks and executes at once: safe whatever threads there are. NotFound or PermissionDenied, with
  // the path, when the program or folder cannot be used; Unavailable when the system has no room.
  static absl::StatusOr<ChildProcess> Start(const ChildOptions& options);

  // Kills the whole process group if the child still runs, and waits for it.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // Non-blocking ends of the pipes, owned by this object; -1 when there is none or it is closed.
  int stdout_fd() const { return stdout_fd_; }
  int stderr_fd() const { return stderr_fd_; }
  void CloseStdout();
  void CloseStderr();

  // To the child's whole process group; nothing once it has been reaped.
  void Signal(int signal);

  // The exit status once the child has ended, else nullopt. What is left of its process group is
  // killed first.
  std::optional<ExitStatus> Poll();

 private:
  ChildProcess(pid_t pid, int stdout_fd, int stderr_fd)
      : pid_(pid), stdout_fd_(stdout_fd), stderr_fd_(stderr_fd) {}

  std::optional<ExitStatus> Reap(bool wait);

  pid_t pid_;
  int stdout_fd_;
  int stderr_fd_;
  std::optional<ExitStatus> status_;
};

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_CHILD_PROCESS_H_
