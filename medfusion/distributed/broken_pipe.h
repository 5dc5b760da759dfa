// A connection that a peer has closed is an error to report, not a reason to die. Internal.
#ifndef MEDFUSION_DISTRIBUTED_BROKEN_PIPE_H_
#define MEDFUSION_DISTRIBUTED_BROKEN_PIPE_H_

#include <csignal>

namespace medfusion {

// Note [Broken pipes]
// Gloo and the server of c10d's store write to sockets without MSG_NOSIGNAL, from threads of their
// own and from the caller's. When the peer has just gone, the kernel sends SIGPIPE, which by
// default ends the process, without a word. (Python ignores it, so PyTorch does not know this.)
// Where the program has not chosen itself what SIGPIPE does, it is ignored from the first
// connection on; the write then fails, and the collective says why.
inline void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0) return;
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_BROKEN_PIPE_H_
