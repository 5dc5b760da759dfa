#include "medfusion/sampler/permutation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>

namespace medfusion {
namespace {

// Note [Swaps known ahead]
// Which elements a shuffle swaps depends on the engine alone, never on the elements. So a block of
// partners is drawn first and their cache lines are asked for, and the swaps that follow find them
// there: a shuffle that is larger than the cache would otherwise wait for memory at every step.
constexpr int64_t kBlock = 256;

std::mt19937 Engine(uint64_t seed) { return std::mt19937(static_cast<uint32_t>(seed)); }

uint64_t Draw64(std::mt19937& engine) {
  const uint64_t high = engine();
  const uint64_t low = engine();
  return high << 32 | low;
}

}  // namespace

template <typename Index>
std::vector<Index> SmallPermutation(int64_t size, uint64_t seed) {
  std::mt19937 engine = Engine(seed);
  std::vector<Index> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), Index{0});
  Index* const data = order.data();
  std::array<int64_t, kBlock> partner;
  for (int64_t begin = 0; begin < size - 1; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - 1 - begin);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = begin + k;
      const uint32_t left = static_cast<uint32_t>(size - i);
      partner[k] = i + static_cast<uint32_t>(engine()) % left;
      __builtin_prefetch(data + partner[k], 1);  // Note [Swaps known ahead]
    }
    for (int64_t k = 0; k < count; ++k) std::swap(data[begin + k], data[partner[k]]);
  }
  return order;
}

template <typename Index>
std::vector<Index> LargePermutation(int64_t size, uint64_t seed) {
  std::mt19937 engine = Engine(seed);
  std::vector<Index> order(static_cast<size_t>(size));
  Index* const data = order.data();
  std::array<int64_t, kBlock> partner;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    for (int64_t k = 0; k < count; ++k) {
      partner[k] = static_cast<int64_t>(Draw64(engine) % static_cast<uint64_t>(begin + k + 1));
      __builtin_prefetch(data + partner[k], 1);  // Note [Swaps known ahead]
    }
    for (int64_t k = 0; k < count; ++k) {
      data[begin + k] = data[partner[k]];
      data[partner[k]] = static_cast<Index>(begin + k);
    }
  }
  return order;
}

template <typename Index>
std::vector<Index> TorchPermutation(int64_t size, uint64_t seed) {
  return size < kLargePermutation ? SmallPermutation<Index>(size, seed)
                                  : LargePermutation<Index>(size, seed);
}

template std::vector<uint32_t> TorchPermutation<uint32_t>(int64_t, uint64_t);
template std::vector<uint64_t> TorchPermutation<uint64_t>(int64_t, uint64_t);
template std::vector<uint32_t> SmallPermutation<uint32_t>(int64_t, uint64_t);
template std::vector<uint64_t> SmallPermutation<uint64_t>(int64_t, uint64_t);
template std::vector<uint32_t> LargePermutation<uint32_t>(int64_t, uint64_t);
template std::vector<uint64_t> LargePermutation<uint64_t>(int64_t, uint64_t);

}  // namespace medfusion
