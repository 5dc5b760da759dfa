// A shuffle whose result the C++ standard fixes; that of std::shuffle is up to the library.
#ifndef MEDFUSION_DATA_SHUFFLE_H_
#define MEDFUSION_DATA_SHUFFLE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace medfusion {

// A uniform number in [0, bound), bound > 0, without bias: draws above the largest multiple of
// `bound` that fits into 64 bits are thrown away, the first other one is taken modulo `bound`.
inline uint64_t UniformBelow(uint64_t bound, std::mt19937_64& generator) {
  const uint64_t rejected = (UINT64_MAX % bound + 1) % bound;  // 2^64 mod bound
  uint64_t draw = generator();
  while (draw > UINT64_MAX - rejected) draw = generator();
  return draw % bound;
}

// Fisher and Yates's shuffle in Durstenfeld's form: for i from the last index down to 1, swaps
// element i with element UniformBelow(i + 1).
template <typename T>
void Shuffle(std::vector<T>& values, std::mt19937_64& generator) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[UniformBelow(i, generator)]);
  }
}

}  // namespace medfusion

#endif  // MEDFUSION_DATA_SHUFFLE_H_
