// The smallest use of the sampler: which samples does each of three ranks read, before and after
// the job is stopped in the middle of an epoch and goes on with two? Needs no LibTorch.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"

namespace {

constexpr int64_t kSamples = 16;

void Print(int64_t rank, const std::vector<size_t>& batch) {
  std::printf("  rank %d:", static_cast<int>(rank));
  for (size_t index : batch) std::printf(" %zu", index);
  std::printf("\n");
}

}  // namespace

int main() {
  medfusion::SamplerState state;
  std::printf("epoch 1, 3 ranks, a batch of 2 each:\n");
  for (int64_t rank = 0; rank < 3; ++rank) {
    medfusion::DistributedSampler sampler(kSamples, /*num_replicas=*/3, rank);
    sampler.SetEpoch(1);
    Print(rank, *sampler.Next(2));
    state = sampler.State();  // ranks are in lockstep: any one's state serves for all
  }

  std::printf("stopped; the rest of epoch 1, 2 ranks:\n");
  for (int64_t rank = 0; rank < 2; ++rank) {
    medfusion::DistributedSampler sampler(kSamples, /*num_replicas=*/2, rank);
    if (absl::Status status = sampler.Restore(state); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    while (const auto batch = sampler.Next(3)) Print(rank, *batch);
  }
}
