#include "medfusion/ddp/bucket_plan.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace medfusion {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

void CheckOrder(size_t size, std::span<const int> order) {
  std::vector<bool> seen(size, false);
  for (int item : order) {
    if (item < 0 || item >= static_cast<int>(size) || seen[item]) {
      throw std::invalid_argument(absl::StrCat("bucket plan: the order of ", size, " items holds ",
                                               item, ", which is out of range or there twice"));
    }
    seen[item] = true;
  }
  if (order.size() != size) {
    throw std::invalid_argument(
        absl::StrCat("bucket plan: the order names ", order.size(), " of ", size, " items"));
  }
}

}  // namespace

std::vector<std::vector<int>> PlanBuckets(std::span<const BucketItem> items,
                                          std::span<const int> order, const BucketLimits& limits) {
  CheckOrder(items.size(), order);
  if (limits.first_bytes <= 0 || limits.bytes <= 0) {
    throw std::invalid_argument(absl::StrCat("bucket plan: limits of ", limits.first_bytes, " and ",
                                             limits.bytes, " bytes; both must be positive"));
  }
  struct Open {
    std::vector<int> members;
    int64_t bytes = 0;
    int64_t limit = 0;
    int last = 0;  // place in `order` of the last member
  };
  std::map<int, Open> open;
  std::vector<Open> closed;
  for (int place = 0; place < static_cast<int>(order.size()); ++place) {
    const BucketItem& item = items[order[place]];
    Open& bucket = open[item.kind];
    if (bucket.limit == 0) bucket.limit = limits.first_bytes;
    bucket.members.push_back(order[place]);
    bucket.bytes += item.numel * item.element_size;
    bucket.last = place;
    if (bucket.bytes < bucket.limit) continue;
    closed.push_back(std::move(bucket));
    bucket = Open{{}, 0, limits.bytes, 0};
  }
  for (auto& [kind, bucket] : open) {
    if (!bucket.members.empty()) closed.push_back(std::move(bucket));
  }
  std::sort(closed.begin(), closed.end(),
            [](const Open& a, const Open& b) { return a.last < b.last; });
  std::vector<std::vector<int>> plan;
  for (Open& bucket : closed) plan.push_back(std::move(bucket.members));
  return plan;
}

BucketLayout LayOutBucket(std::span<const BucketItem> items, std::span<const int> members) {
  BucketLayout layout;
  for (int member : members) {
    const int64_t step = std::max<int64_t>(1, kAlignment / items[member].element_size);
    const int64_t offset = (layout.numel + step - 1) / step * step;
    layout.offsets.push_back(offset);
    layout.numel = offset + items[member].numel;
  }
  return layout;
}

}  // namespace medfusion
