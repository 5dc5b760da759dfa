// What a training run can be told.
#ifndef MEDFUSION_TRAIN_OPTIONS_H_
#define MEDFUSION_TRAIN_OPTIONS_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace medfusion {

// What happens when the loss of a step is NaN or infinite on any rank. All ranks do the same.
enum class OnNonfinite {
  kStop,  // the run ends with an error that names rank and step
  kSkip,  // the step is left out on all ranks, counted and reported
};

// "stop" or "skip"; InvalidArgument otherwise.
absl::StatusOr<OnNonfinite> ParseOnNonfinite(std::string_view text);

// The same on all ranks.
struct TrainOptions {
  int64_t epochs = 40;
  // Samples per rank and forward. One optimizer step sees batch_size * ranks * accumulate samples;
  // runs with the same product give the same result up to rounding, whatever the number of ranks.
  int64_t batch_size = 16;
  // Batches whose gradients add up before one optimizer step.
  int64_t accumulate = 1;
  // Of AdamW.
  double learning_rate = 3e-3;
  double weight_decay = 1e-2;
  // Scales gradients down to this norm; 0 leaves them.
  double clip_norm = 0;
  // Decides the order of samples and all random numbers of training.
  int64_t seed = 0;
  // Ends after this many epochs in a row without a lower validation loss; 0 never.
  int64_t patience = 10;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  // Epochs between checkpoints; the last one is saved as well. 0 saves none.
  int64_t save_interval = 5;
  // Go on from the newest checkpoint, if there is one.
  bool resume = false;

  // InvalidArgument that names the option, its value and what it may be.
  absl::Status Check() const;

  // Names and values of all that must be the same on every rank.
  std::vector<std::pair<std::string, std::string>> Settings() const;
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_OPTIONS_H_
