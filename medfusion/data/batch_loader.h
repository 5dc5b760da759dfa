// Batches in the order that a sampler says.
#ifndef MEDFUSION_DATA_BATCH_LOADER_H_
#define MEDFUSION_DATA_BATCH_LOADER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "medfusion/data/batch.h"

namespace medfusion {

// Joins a source of indices (a DistributedSampler's Next, or any other) and a data set. Both are
// borrowed by the functions passed in and must outlive the loader. Used by one thread, not
// collective: how many batches a rank gets is up to the source.
class BatchLoader {
 public:
  // At most batch_size positions, in reading order; nullopt when the epoch is over.
  using IndexSource = std::function<std::optional<std::vector<size_t>>(size_t batch_size)>;
  using Fetch = std::function<Batch(std::span<const size_t> indices)>;

  // Throws std::invalid_argument when batch_size is 0 or a function is empty.
  BatchLoader(IndexSource source, Fetch fetch, size_t batch_size);

  // For any `dataset` with Batch Get(std::span<const size_t>) const, such as TabularDataset.
  template <typename Dataset>
  BatchLoader(IndexSource source, const Dataset& dataset, size_t batch_size)
      : BatchLoader(std::move(source), Fetch([&dataset](std::span<const size_t> indices) {
                      return dataset.Get(indices);
                    }),
                    batch_size) {}

  // The next batch, the last of an epoch possibly smaller, or nullopt when the epoch is over. What
  // follows then is up to the source.
  std::optional<Batch> Next();

 private:
  IndexSource source_;
  Fetch fetch_;
  size_t batch_size_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DATA_BATCH_LOADER_H_
