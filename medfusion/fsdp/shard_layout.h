// Where each parameter of a unit lies in the unit's flat parameter, and which part of it a rank
// holds. Pure logic; neither tensors nor ranks.
//
//   flat:   | weight                | bias  |pad|      padded = shard_numel * shards
//   shards: | rank 0    | rank 1    | rank 2    |      all of one size, cut without regard to
//                                                      the parameters' borders
#ifndef MEDFUSION_FSDP_SHARD_LAYOUT_H_
#define MEDFUSION_FSDP_SHARD_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace medfusion {

// The part of one parameter that one rank holds; numel is 0 when it holds none.
struct ShardSlice {
  int64_t parameter_offset = 0;  // in the parameter, flattened in memory order
  int64_t shard_offset = 0;      // in the rank's shard
  int64_t numel = 0;
};

struct ShardLayout {
  std::vector<int64_t> numels;   // by parameter
  std::vector<int64_t> offsets;  // in the flat parameter, by parameter
  int64_t numel = 0;             // of all parameters
  int64_t shard_numel = 0;       // of each rank's shard; the last ones may hold padding only
  int shards = 1;

  // Fewer than `shards` elements more than numel: below one per rank.
  int64_t padded_numel() const { return shard_numel * shards; }
  int64_t padding() const { return padded_numel() - numel; }

  // What rank `rank` of 0..shards-1 holds of parameter `parameter`.
  ShardSlice Slice(int parameter, int rank) const;
};

// Parameters one after another. `shards` is at least 1; sizes are not negative.
ShardLayout LayOutShards(std::span<const int64_t> numels, int shards);

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_SHARD_LAYOUT_H_
