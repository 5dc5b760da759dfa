// One flat parameter's gradients: collected whole, reduced into a shard.
#ifndef MEDFUSION_FSDP_FLAT_GRADIENT_H_
#define MEDFUSION_FSDP_FLAT_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_parameter.h"

namespace medfusion {

// Who adds up gradients. The groups are used for nothing else: reductions then keep one order among
// themselves whatever pages in between.
struct ReduceGroups {
  std::shared_ptr<ProcessGroup> shard;      // the ranks among which a parameter is split
  std::shared_ptr<ProcessGroup> replicate;  // those that hold the same shard; null without copies
  int ranks = 1;                            // of both together: what sums are divided by
};

class FlatGradient {
 public:
  FlatGradient(FlatParameter& parameter, const ReduceGroups& groups)
      : parameter_(parameter), groups_(groups), filled_(parameter.members().size(), false) {}

  // Adds to what was added since the last reduction. `gradient` has the member's shape.
  void Add(int member, const at::Tensor& gradient);
  // True when something was added for the member since the last reduction.
  bool filled(int member) const { return filled_[member]; }

  // Collective. Members without gradient count as zero.
  void StartReduce();
  // Frees the full gradient if its reduction is over. Does not block.
  void Poll();
  // Collective, in the order of StartReduce. Blocks; the average is in the gradients of the flat
  // parameter's slices then: added, where there is one. Members that are not in `used` are left
  // alone.
  void FinishReduce(const std::vector<char>& used);
  // Forgets everything that was added or started.
  void Drop();

  bool reducing() const { return work_ != nullptr || reduced_.defined(); }

 private:
  void ZeroWhatIsNotFilled();
  void EndTransfer();

  FlatParameter& parameter_;
  const ReduceGroups& groups_;
  std::vector<char> filled_;
  at::Tensor full_;     // undefined when nothing was added
  at::Tensor reduced_;  // laid out like the shard
  WorkPtr work_;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FLAT_GRADIENT_H_
