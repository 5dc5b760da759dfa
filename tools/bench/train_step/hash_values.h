// Numbers that any program can compute again bit for bit: an integer hash of a stream and an index.
#ifndef MEDFUSION_TOOLS_BENCH_TRAIN_STEP_HASH_VALUES_H_
#define MEDFUSION_TOOLS_BENCH_TRAIN_STEP_HASH_VALUES_H_

#include <cstdint>

namespace medfusion::bench {

// Uniform over all 32-bit numbers: MurmurHash3's finalizer.
inline uint32_t Hash(uint32_t stream, uint32_t index) {
  uint32_t h = index + 0x9E3779B9u * (stream + 1);
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h;
}

// In [-1, 1), exact in float32.
inline float Uniform(uint32_t stream, uint32_t index) {
  const auto centred = static_cast<int32_t>(Hash(stream, index) >> 8) - (1 << 23);
  return static_cast<float>(centred) * 0x1p-23f;
}

}  // namespace medfusion::bench

#endif  // MEDFUSION_TOOLS_BENCH_TRAIN_STEP_HASH_VALUES_H_
