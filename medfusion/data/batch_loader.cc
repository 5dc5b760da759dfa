#include "medfusion/data/batch_loader.h"

#include <stdexcept>
#include <utility>

namespace medfusion {

BatchLoader::BatchLoader(IndexSource source, Fetch fetch, size_t batch_size)
    : source_(std::move(source)), fetch_(std::move(fetch)), batch_size_(batch_size) {
  if (!source_ || !fetch_) throw std::invalid_argument("BatchLoader: an empty function");
  if (batch_size_ == 0) throw std::invalid_argument("BatchLoader: batch_size is 0; expected 1..");
}

std::optional<Batch> BatchLoader::Next() {
  const std::optional<std::vector<size_t>> indices = source_(batch_size_);
  if (!indices) return std::nullopt;
  return fetch_(*indices);
}

}  // namespace medfusion
