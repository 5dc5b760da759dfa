// Prints the indices that each of two replicas reads, in order.
#include <cstdio>

#include "medfusion/sampler/distributed_sampler.h"

int main() {
  medfusion::SamplerOptions options;
  options.shuffle = false;
  for (int rank = 0; rank < 2; ++rank) {
    medfusion::DistributedSampler sampler(/*size=*/5, /*num_replicas=*/2, rank, options);
    std::printf("rank %d:", rank);
    while (const auto batch = sampler.Next(/*batch_size=*/2)) {
      for (size_t index : *batch) std::printf(" %zu", index);
    }
    std::printf("\n");
  }
}
