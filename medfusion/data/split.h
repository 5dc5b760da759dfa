// A split of samples into training, validation and test parts that keeps each class's share, and
// that is the same on every platform.
#ifndef MEDFUSION_DATA_SPLIT_H_
#define MEDFUSION_DATA_SPLIT_H_

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace medfusion {

struct SplitFractions {
  double train = 0.7;
  double validation = 0.15;
  double test = 0.15;
};

// Indices of samples, ascending in each part; every sample is in exactly one.
struct Split {
  std::vector<size_t> train;
  std::vector<size_t> validation;
  std::vector<size_t> test;
};

// Splits each class by itself, classes in ascending order of their label: the indices of its n
// samples are shuffled (see Shuffle) with one std::mt19937_64(seed) for all classes, and dealt in
// order to train, validation and test. Sizes follow the largest remainder rule: floor(n * fraction)
// each, and what is left over one by one to the parts with the largest remainder, the earlier part
// first where they are equal.
//
// InvalidArgument: no labels; a fraction that is negative or not finite, or fractions that do not
// sum to 1 (within 1e-6); a class that would have no sample in a part whose fraction is not 0.
// Deterministic, not collective: every rank computes the same split.
absl::StatusOr<Split> StratifiedSplit(std::span<const int64_t> labels,
                                      const SplitFractions& fractions, uint64_t seed);

}  // namespace medfusion

#endif  // MEDFUSION_DATA_SPLIT_H_
