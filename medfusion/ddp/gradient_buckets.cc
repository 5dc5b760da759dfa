#include "medfusion/ddp/gradient_buckets.h"

#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace medfusion {

GradientBuckets::GradientBuckets(std::shared_ptr<ProcessGroup> group,
                                 std::vector<at::Tensor> parameters, const BucketLimits& limits)
    : group_(std::move(group)), parameters_(std::move(parameters)), limits_(limits) {
  std::map<std::pair<at::ScalarType, std::string>, int> kinds;
  for (const at::Tensor& tensor : parameters_) {
    const int next_kind = static_cast<int>(kinds.size());
    const auto kind = kinds.try_emplace({tensor.scalar_type(), tensor.device().str()}, next_kind);
    items_.push_back(
        {tensor.numel(), static_cast<int64_t>(tensor.element_size()), kind.first->second});
  }
  std::vector<int> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  LayOut(order);
}

std::vector<std::vector<int>> GradientBuckets::plan() const {
  std::vector<std::vector<int>> plan;
  for (const Bucket& bucket : buckets_) plan.push_back(bucket.members());
  return plan;
}

void GradientBuckets::LayOut(const std::vector<int>& order) {
  order_ = order;
  buckets_.clear();
  places_.resize(parameters_.size());
  for (std::vector<int>& members : PlanBuckets(items_, order, limits_)) {
    const int number = static_cast<int>(buckets_.size());
    const Bucket& bucket = buckets_.emplace_back(*group_, std::move(members), items_, parameters_);
    for (size_t k = 0; k < bucket.members().size(); ++k) {
      places_[bucket.members()[k]] = {number, bucket.slots()[k]};
    }
  }
}

void GradientBuckets::Adopt(int parameter) {
  const at::Tensor& grad = parameters_[parameter].grad();
  const at::Tensor& slot = SlotOf(parameter);
  if (SameMemory(grad, slot)) return;
  slot.copy_(grad);
  PointGradAtSlot(parameter);
}

void GradientBuckets::PointGradAtSlot(int parameter) {
  parameters_[parameter].mutable_grad() = SlotOf(parameter);
}

bool GradientBuckets::Rebuild(const std::vector<int>& order) {
  if (PlanBuckets(items_, order, limits_) == plan()) return false;
  const std::vector<Place> old = places_;
  LayOut(order);
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    const at::Tensor& grad = parameters_[i].grad();
    if (grad.defined() && SameMemory(grad, old[i].slot)) Adopt(i);
  }
  return true;
}

}  // namespace medfusion
