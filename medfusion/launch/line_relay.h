// Passes a child's output on in whole lines, so that those of several ranks never mix.
#ifndef MEDFUSION_LAUNCH_LINE_RELAY_H_
#define MEDFUSION_LAUNCH_LINE_RELAY_H_

#include <deque>
#include <string>
#include <string_view>

namespace medfusion {

// Not thread safe. Owns neither descriptor.
class LineRelay {
 public:
  // Writes to `to`, each line after `prefix`.
  LineRelay(int to, std::string prefix) : to_(to), prefix_(std::move(prefix)) {}

  // Reads all that the non-blocking descriptor `from` has now. False at its end. A line of more
  // than 64 KiB is passed on in pieces.
  bool Drain(int from);

  // Passes on a last line without its end, ended.
  void Finish();

  // The last lines that were not empty, at most five, for the report of a failure.
  std::string Tail() const;

 private:
  void Take(std::string_view bytes);
  void Emit(std::string_view line);

  int to_;
  std::string prefix_;
  std::string partial_;
  std::deque<std::string> tail_;
};

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_LINE_RELAY_H_
