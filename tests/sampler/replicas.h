// All replicas of a sampler in one process.
#ifndef MEDFUSION_TESTS_SAMPLER_REPLICAS_H_
#define MEDFUSION_TESTS_SAMPLER_REPLICAS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"

namespace medfusion {

using Replicas = std::vector<DistributedSampler>;

// One sampler per rank.
Replicas MakeReplicas(int64_t size, int64_t num_replicas, SamplerOptions options = {});

// What one sampler still gives, taken `batch_size` at a time.
std::vector<size_t> ReadAll(DistributedSampler& sampler, size_t batch_size = 5);

// Up to `count` indices of one sampler, in one piece.
std::vector<size_t> Read(DistributedSampler& sampler, size_t count);

// How often each index occurs.
using Census = std::map<size_t, int64_t>;
void Count(const std::vector<size_t>& indices, Census& census);

// What all replicas still give.
Census ReadAll(Replicas& replicas);

}  // namespace medfusion

#endif  // MEDFUSION_TESTS_SAMPLER_REPLICAS_H_
