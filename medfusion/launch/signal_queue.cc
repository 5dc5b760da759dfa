#include "medfusion/launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace medfusion {

SignalQueue::SignalQueue() {
  sigset_t queued;
  sigemptyset(&queued);
  sigaddset(&queued, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&queued, signal);
  }
  pthread_sigmask(SIG_BLOCK, &queued, &before_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  fd_ = signalfd(-1, &queued, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalQueue::~SignalQueue() {
  Take();  // what was asked for has been done; it must not strike now
  close(fd_);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalQueue::Take() {
  std::vector<int> taken;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) taken.push_back(static_cast<int>(info.ssi_signo));
  }
  return taken;
}

}  // namespace medfusion
