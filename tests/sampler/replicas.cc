#include "tests/sampler/replicas.h"

namespace medfusion {

Replicas MakeReplicas(int64_t size, int64_t num_replicas, SamplerOptions options) {
  Replicas replicas;
  for (int64_t rank = 0; rank < num_replicas; ++rank) {
    replicas.emplace_back(size, num_replicas, rank, options);
  }
  return replicas;
}

std::vector<size_t> Read(DistributedSampler& sampler, size_t count) {
  if (count == 0) return {};
  return sampler.Next(count).value_or(std::vector<size_t>());
}

std::vector<size_t> ReadAll(DistributedSampler& sampler, size_t batch_size) {
  std::vector<size_t> all;
  while (auto batch = sampler.Next(batch_size)) {
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

void Count(const std::vector<size_t>& indices, Census& census) {
  for (size_t index : indices) ++census[index];
}

Census ReadAll(Replicas& replicas) {
  Census census;
  for (DistributedSampler& sampler : replicas) Count(ReadAll(sampler), census);
  return census;
}

}  // namespace medfusion
