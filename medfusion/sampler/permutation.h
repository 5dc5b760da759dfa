// PyTorch's permutations, index for index, without LibTorch.
#ifndef MEDFUSION_SAMPLER_PERMUTATION_H_
#define MEDFUSION_SAMPLER_PERMUTATION_H_

#include <cstdint>
#include <vector>

namespace medfusion {

// What torch.randperm(size, generator=torch.Generator().manual_seed(seed)) gives on the CPU, for
// any `size` >= 0 that `Index` (uint32_t or uint64_t) can count. Takes size * sizeof(Index) bytes:
// uint32_t serves up to 2^32 samples.
//
// PyTorch's engine takes the low 32 bits of the seed alone, so that seeds 2^32 apart give the same
// order, and a negative seed counts as its two's complement. Thread safe.
template <typename Index>
std::vector<Index> TorchPermutation(int64_t size, uint64_t seed);

extern template std::vector<uint32_t> TorchPermutation<uint32_t>(int64_t, uint64_t);
extern template std::vector<uint64_t> TorchPermutation<uint64_t>(int64_t, uint64_t);

// The two algorithms behind it: PyTorch takes the second one from kLargePermutation samples on.
// Public for their tests.
inline constexpr int64_t kLargePermutation = 0xFFFFFFFF / 20;
template <typename Index>
std::vector<Index> SmallPermutation(int64_t size, uint64_t seed);
template <typename Index>
std::vector<Index> LargePermutation(int64_t size, uint64_t seed);

extern template std::vector<uint32_t> SmallPermutation<uint32_t>(int64_t, uint64_t);
extern template std::vector<uint64_t> SmallPermutation<uint64_t>(int64_t, uint64_t);
extern template std::vector<uint32_t> LargePermutation<uint32_t>(int64_t, uint64_t);
extern template std::vector<uint64_t> LargePermutation<uint64_t>(int64_t, uint64_t);

}  // namespace medfusion

#endif  // MEDFUSION_SAMPLER_PERMUTATION_H_
