// All buckets of a module, and where each parameter's gradient lives in them.
#ifndef MEDFUSION_DDP_GRADIENT_BUCKETS_H_
#define MEDFUSION_DDP_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "medfusion/ddp/bucket.h"
#include "medfusion/ddp/bucket_plan.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Parameters are known by their index in the list given to the constructor. Not thread safe.
// Nothing here is collective, but all ranks lay out the same buckets.
class GradientBuckets {
 public:
  // Lays out buckets in the reverse of the parameters' order: backward meets the last registered
  // first, as a rule. Existing gradients stay where they are until Adopt.
  GradientBuckets(std::shared_ptr<ProcessGroup> group, std::vector<at::Tensor> parameters,
                  const BucketLimits& limits);

  int size() const { return static_cast<int>(buckets_.size()); }
  Bucket& operator[](int bucket) { return buckets_[bucket]; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  int BucketOf(int parameter) const { return places_[parameter].bucket; }
  const at::Tensor& SlotOf(int parameter) const { return places_[parameter].slot; }
  // Members by bucket.
  std::vector<std::vector<int>> plan() const;
  // The order of parameters that the plan was made from.
  const std::vector<int>& order() const { return order_; }

  // Makes the parameter's slot hold its gradient, which must be defined, and grad be the slot.
  // Copies only when autograd or the user put another tensor there.
  void Adopt(int parameter);
  // Makes grad the slot, whatever it was.
  void PointGradAtSlot(int parameter);

  // Lays out anew from `order`, a permutation; gradients that live in buckets move along. False
  // when that is the present layout.
  bool Rebuild(const std::vector<int>& order);

 private:
  struct Place {
    int bucket = 0;
    at::Tensor slot;
  };

  void LayOut(const std::vector<int>& order);

  const std::shared_ptr<ProcessGroup> group_;
  const std::vector<at::Tensor> parameters_;
  const BucketLimits limits_;
  std::vector<BucketItem> items_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter
  std::vector<int> order_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_GRADIENT_BUCKETS_H_
