#include "medfusion/fsdp/shard_layout.h"

#include <algorithm>

namespace medfusion {

ShardLayout LayOutShards(std::span<const int64_t> numels, int shards) {
  ShardLayout layout;
  layout.shards = shards;
  layout.numels.assign(numels.begin(), numels.end());
  for (int64_t numel : numels) {
    layout.offsets.push_back(layout.numel);
    layout.numel += numel;
  }
  layout.shard_numel = (layout.numel + shards - 1) / shards;
  return layout;
}

ShardSlice ShardLayout::Slice(int parameter, int rank) const {
  const int64_t shard_begin = rank * shard_numel;
  const int64_t begin = std::max(offsets[parameter], shard_begin);
  const int64_t end = std::min(offsets[parameter] + numels[parameter], shard_begin + shard_numel);
  if (begin >= end) return {};
  return {begin - offsets[parameter], begin - shard_begin, end - begin};
}

}  // namespace medfusion
