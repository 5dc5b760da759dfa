// What ranks must have in common before they train together: the same module with the same values.
#ifndef MEDFUSION_DDP_MODULE_STATE_H_
#define MEDFUSION_DDP_MODULE_STATE_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Collective. Throws std::invalid_argument on all ranks, with the same text, when the lists differ
// between ranks; the text names the first entry that differs and every rank's value of it. An entry
// is one line such as "parameter fc.weight: Float [64, 30]".
void RequireSameOnAllRanks(ProcessGroup& group, const std::vector<std::string>& entries);

// dtype, shape, strides and whether it requires grad, for the above.
std::string DescribeTensor(const at::Tensor& tensor);

// Broadcasts many tensors as one flat piece per dtype. Keeps the flat memory for the next time.
class CoalescedBroadcast {
 public:
  // Tensors on the group's device, the same on all ranks. Writes to them do not count as in-place
  // changes for autograd: a forward that is still to be differentiated stays valid.
  CoalescedBroadcast(ProcessGroup& group, std::vector<at::Tensor> tensors);

  // Collective. Every tensor becomes rank `root`'s, bit by bit.
  void Run(ProcessGroup& group, int root);
  bool empty() const { return tensors_.empty(); }

 private:
  struct Piece {
    std::vector<int> members;
    at::Tensor flat;
  };
  std::vector<at::Tensor> tensors_;
  std::vector<Piece> pieces_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_MODULE_STATE_H_
