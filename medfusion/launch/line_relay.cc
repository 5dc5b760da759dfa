#include "medfusion/launch/line_relay.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace medfusion {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr size_t kTailLines = 5;

// Blocks until all is written; gives up where nobody reads.
void WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {  // somebody made our standard output non-blocking
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

bool LineRelay::Drain(int from) {
  char buffer[1 << 14];
  while (true) {
    const ssize_t count = read(from, buffer, sizeof(buffer));
    if (count > 0) {
      Take({buffer, static_cast<size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
}

void LineRelay::Take(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    partial_.append(bytes.substr(0, end));
    if (end == std::string_view::npos) break;
    Emit(partial_);
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
  if (partial_.size() >= kLongestLine) Finish();
}

void LineRelay::Finish() {
  if (partial_.empty()) return;
  Emit(partial_);
  partial_.clear();
}

void LineRelay::Emit(std::string_view line) {
  const std::string text(line);
  WriteAll(to_, absl::StrCat(prefix_, text, "\n"));
  if (text.empty()) return;
  tail_.push_back(text);
  if (tail_.size() > kTailLines) tail_.pop_front();
}

std::string LineRelay::Tail() const { return absl::StrJoin(tail_, "\n"); }

}  // namespace medfusion
