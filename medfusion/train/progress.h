// What a person sees of a run.
#ifndef MEDFUSION_TRAIN_PROGRESS_H_
#define MEDFUSION_TRAIN_PROGRESS_H_

#include <chrono>
#include <cstdio>
#include <string>

#include "medfusion/train/trainer.h"

namespace medfusion {

// On a terminal a bar that moves with the steps and becomes a line at the end of each epoch, else
// the lines alone. For the main rank; give the others none. Not thread safe.
class Progress {
 public:
  // Borrows `stream`; null prints nothing.
  Progress(std::FILE* stream, int64_t epochs);

  void Step(const StepInfo& step);
  void Epoch(const EpochRecord& record);
  // A line of its own.
  void Say(const std::string& text);

 private:
  std::FILE* stream_;
  int64_t epochs_;
  bool terminal_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_PROGRESS_H_
