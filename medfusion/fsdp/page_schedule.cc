#include "medfusion/fsdp/page_schedule.h"

#include <algorithm>
#include <utility>

namespace medfusion {
namespace {

// A user who never calls backward never ends a pass.
constexpr size_t kMostRecorded = 65536;

}  // namespace

void PageSchedule::Learn(std::vector<int> order) {
  order_ = std::move(order);
  positions_.clear();
  for (size_t i = 0; i < order_.size(); ++i) {
    const auto unit = static_cast<size_t>(order_[i]);
    if (unit >= positions_.size()) positions_.resize(unit + 1);
    positions_[unit].push_back(static_cast<int64_t>(i));
  }
  learned_ = true;
  Start();
}

void PageSchedule::Start() {
  recorded_.clear();
  next_ = 0;
  first_deviation_ = -1;
}

void PageSchedule::Touch(int unit, bool in_memory) {
  if (!recorded_.empty() && recorded_.back() == unit) return;
  if (recorded_.size() < kMostRecorded) recorded_.push_back(unit);
  if (next_ < static_cast<int64_t>(order_.size()) && order_[next_] == unit) {
    ++next_;
    return;
  }
  if (in_memory) return;
  if (!deviated()) first_deviation_ = unit;
  const int64_t distance = NextUse(unit);
  next_ = distance == kNever ? static_cast<int64_t>(order_.size()) : next_ + distance + 1;
}

int64_t PageSchedule::NextUse(int unit) const {
  if (static_cast<size_t>(unit) >= positions_.size()) return kNever;
  const std::vector<int64_t>& positions = positions_[unit];
  const auto at = std::lower_bound(positions.begin(), positions.end(), next_);
  return at == positions.end() ? kNever : *at - next_;
}

std::vector<int> PageSchedule::Upcoming(int count) const {
  std::vector<int> units;
  const int current = recorded_.empty() ? -1 : recorded_.back();
  for (size_t i = static_cast<size_t>(next_);
       i < order_.size() && static_cast<int>(units.size()) < count; ++i) {
    if (order_[i] == current) continue;
    if (std::find(units.begin(), units.end(), order_[i]) == units.end()) units.push_back(order_[i]);
  }
  return units;
}

}  // namespace medfusion
