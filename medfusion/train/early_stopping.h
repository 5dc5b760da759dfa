// When to stop, and which epoch was best. Pure.
#ifndef MEDFUSION_TRAIN_EARLY_STOPPING_H_
#define MEDFUSION_TRAIN_EARLY_STOPPING_H_

#include <cstdint>
#include <limits>

namespace medfusion {

struct EarlyStopping {
  // Epochs without improvement that end the run; 0 never does.
  int64_t patience = 0;

  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_epoch = 0;  // from 1; 0 before the first
  int64_t waited = 0;      // epochs since

  // After each epoch. True when this one is the best so far. A NaN never is.
  bool Update(int64_t epoch, double loss) {
    if (loss < best_loss) {
      best_loss = loss;
      best_epoch = epoch;
      waited = 0;
      return true;
    }
    ++waited;
    return false;
  }

  bool ShouldStop() const { return patience > 0 && waited >= patience; }
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_EARLY_STOPPING_H_
