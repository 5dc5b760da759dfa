#include "medfusion/train/progress.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

namespace medfusion {
namespace {

constexpr int kBarWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(50);
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

Progress::Progress(std::FILE* stream, int64_t epochs)
    : stream_(stream),
      epochs_(epochs),
      terminal_(stream != nullptr && isatty(fileno(stream)) == 1) {}

void Progress::Step(const StepInfo& step) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kRedraw) return;
  drawn_ = now;
  const auto done = static_cast<size_t>(kBarWidth * step.step / step.steps);
  const std::string bar = std::string(done, '#') + std::string(kBarWidth - done, '.');
  const std::string line =
      absl::StrFormat("%sepoch %3d/%d [%s] step %d/%d  loss %.4f", kEraseLine, step.epoch, epochs_,
                      bar, step.step, step.steps, step.loss);
  std::fputs(line.c_str(), stream_);
  std::fflush(stream_);
}

void Progress::Epoch(const EpochRecord& record) {
  std::string line =
      absl::StrFormat("epoch %3d/%d  loss %.4f", record.epoch, epochs_, record.train.loss);
  for (const char* name : {"loss", "auroc", "accuracy"}) {
    const auto found = record.validation.find(name);
    if (found != record.validation.end()) {
      absl::StrAppend(&line, "  val ", name, " ", found->second.ToString());
    }
  }
  absl::StrAppend(&line, absl::StrFormat("  %.2f s", record.train.seconds),
                  record.best ? "  best" : "");
  if (record.train.skipped_steps > 0) {
    absl::StrAppend(&line, "  skipped ", record.train.skipped_steps);
  }
  Say(line);
}

void Progress::Say(const std::string& text) {
  if (stream_ == nullptr) return;
  std::fprintf(stream_, "%s%s\n", terminal_ ? kEraseLine : "", text.c_str());
  std::fflush(stream_);
}

}  // namespace medfusion
