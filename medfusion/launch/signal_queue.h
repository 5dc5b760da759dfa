// Signals as a descriptor that can be polled, instead of handlers that interrupt.
#ifndef MEDFUSION_LAUNCH_SIGNAL_QUEUE_H_
#define MEDFUSION_LAUNCH_SIGNAL_QUEUE_H_

#include <signal.h>

#include <vector>

namespace medfusion {

// While it lives, SIGCHLD and the signals that ask a program to end are queued. Those that the
// process ignores (nohup) stay ignored, and SIGPIPE is. Construct it before there are threads.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }
  // Those that have arrived since the last call, SIGCHLD left out.
  std::vector<int> Take();

 private:
  int fd_;
  sigset_t before_;
  struct sigaction pipe_before_;
};

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_SIGNAL_QUEUE_H_
