// One flat parameter's gradients: collected whole, reduced into a shard.
#ifndef MEDFUSION_FSDP_FLAT_GRADIENT_H_
#define MEDFUSION_FSDP_FLAT_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_parameter.h"
#include "medfusion/fsdp/full_buffers.h"

namespace medfusion {

// Who adds up gradients. The groups are used for nothing else: reductions then keep one order among
// themselves whatever pages in between.
struct ReduceGroups {
  std::shared_ptr<ProcessGroup> shard;      // the ranks among which a parameter is split
  std::shared_ptr<ProcessGroup> replicate;  // those that hold the same shard; null without copies
};

class FlatGradient {
 public:
  // `dtype` is that of the full gradient and of the sum over the ranks.
  FlatGradient(FlatParameter& parameter, const ReduceGroups& groups, FullBuffers& buffers,
               at::ScalarType dtype)
      : parameter_(parameter),
        groups_(groups),
        buffers_(buffers),
        dtype_(dtype),
        filled_(parameter.members().size(), false) {}
  ~FlatGradient() { Drop(); }
  FlatGradient(const FlatGradient&) = delete;
  FlatGradient& operator=(const FlatGradient&) = delete;

  // Adds to what was added since the last reduction. `gradient` has the member's shape. Takes a
  // full buffer when there is none.
  void Add(int member, const at::Tensor& gradient);
  // True when something was added for the member since the last reduction.
  bool filled(int member) const { return filled_[member]; }
  // True when there is a full gradient, being collected or on its way.
  bool in_memory() const { return full_.defined(); }

  // Collective. Members without gradient count as zero.
  void StartReduce();
  // Frees the full gradient if its reduction is over. Does not block.
  void Poll();
  // Blocks until the reduction is over, and frees the full gradient.
  void EndTransfer();
  // Collective, in the order of StartReduce. Blocks; the average is in the gradients of the flat
  // parameter's slices then: added, where there is one. Members that are not in `used` are left
  // alone.
  void FinishReduce(const std::vector<char>& used);
  // Forgets everything that was added or started.
  void Drop() noexcept;

 private:
  void TakeFull();
  void ReturnFull();
  void ZeroWhatIsNotFilled();
  void Deliver(const std::vector<char>& used);
  bool EveryGradientExists() const;

  FlatParameter& parameter_;
  const ReduceGroups& groups_;
  FullBuffers& buffers_;
  const at::ScalarType dtype_;
  std::vector<char> filled_;
  at::Tensor full_;     // undefined when nothing was added
  at::Tensor reduced_;  // laid out like the shard
  WorkPtr work_;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FLAT_GRADIENT_H_
