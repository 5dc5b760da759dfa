// Which gradients travel together. Pure: no tensors, no group.
#ifndef MEDFUSION_DDP_BUCKET_PLAN_H_
#define MEDFUSION_DDP_BUCKET_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

namespace medfusion {

struct BucketItem {
  int64_t numel = 0;
  int64_t element_size = 0;  // bytes
  // Items of different kinds (dtype, device) never share a bucket.
  int kind = 0;
};

// A bucket closes when it holds at least this much. The first is small, so that communication
// starts early in backward. PyTorch: bucket_cap_mb = 25 and a first bucket of 1 MiB.
struct BucketLimits {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
};

// Cuts the items, taken in `order` (a permutation of 0..items.size()-1, the order in which they
// become ready), into buckets of one kind each. Within a bucket the order is kept; the buckets are
// in the order in which they become complete. Throws std::invalid_argument when `order` is no
// permutation or a limit is not positive.
std::vector<std::vector<int>> PlanBuckets(std::span<const BucketItem> items,
                                          std::span<const int> order, const BucketLimits& limits);

struct BucketLayout {
  std::vector<int64_t> offsets;  // in elements, one per member
  int64_t numel = 0;
};

// Places members one after another, each on a boundary of 64 bytes (a cache line, and enough for
// any vectorised kernel).
BucketLayout LayOutBucket(std::span<const BucketItem> items, std::span<const int> members);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_BUCKET_PLAN_H_
