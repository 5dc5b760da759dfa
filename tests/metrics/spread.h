// Deals samples to ranks in all the ways that evaluation meets: evenly, at random, to some ranks
// only.
#ifndef MEDFUSION_TESTS_METRICS_SPREAD_H_
#define MEDFUSION_TESTS_METRICS_SPREAD_H_

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>
#include <vector>

#include "medfusion/metrics/metric.h"

namespace medfusion::testing {

// The sample numbers that each rank sees, every one once. A third of the spreads leaves a rank
// without samples and a third gives one rank everything.
inline std::vector<std::vector<int64_t>> RandomSpread(int64_t samples, int ranks,
                                                      std::mt19937& random) {
  std::vector<std::vector<int64_t>> spread(static_cast<size_t>(ranks));
  const int kind = static_cast<int>(random() % 3);
  const auto special = static_cast<size_t>(random() % static_cast<unsigned>(ranks));
  for (int64_t sample = 0; sample < samples; ++sample) {
    size_t rank = random() % static_cast<unsigned>(ranks);
    if (kind == 1 && rank == special) rank = (rank + 1) % static_cast<unsigned>(ranks);
    if (kind == 2) rank = special;
    spread[rank].push_back(sample);
  }
  return spread;
}

// The samples cut into batches of 1 to 7, the last of which may be empty.
inline std::vector<std::vector<int64_t>> RandomBatches(const std::vector<int64_t>& samples,
                                                       std::mt19937& random) {
  std::vector<std::vector<int64_t>> batches(1);
  for (const int64_t sample : samples) {
    batches.back().push_back(sample);
    if (random() % 7 == 0 || batches.back().size() == 7) batches.emplace_back();
  }
  return batches;
}

// Rows `batch` of `tensor`.
inline at::Tensor Rows(const at::Tensor& tensor, const std::vector<int64_t>& batch) {
  return tensor.index_select(0, torch::tensor(batch, torch::kLong));
}

// Updates a fresh M per rank with that rank's samples, and merges their states into one, as the
// ranks of a job would.
template <typename M, typename UpdateBatch>
M MergeSpread(const M& empty, int64_t samples, int ranks, std::mt19937& random,
              const UpdateBatch& update) {
  M merged = empty;
  for (const std::vector<int64_t>& own : RandomSpread(samples, ranks, random)) {
    M local = empty;
    for (const std::vector<int64_t>& batch : RandomBatches(own, random)) update(local, batch);
    EXPECT_TRUE(local.status().ok()) << local.status();
    EXPECT_TRUE(merged.Merge(local.State()).ok());
  }
  return merged;
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_METRICS_SPREAD_H_
