// Training on uneven inputs: ranks that have run out of data keep the others company.
#ifndef MEDFUSION_DDP_JOIN_H_
#define MEDFUSION_DDP_JOIN_H_

#include <functional>

#include "medfusion/ddp/replica.h"

namespace medfusion {

// One per epoch or training run, on all ranks, around the loop:
//
//   Join join(model);
//   for (auto& batch : my_batches) {           // as many as this rank has
//     optimizer.zero_grad();
//     loss(model->forward(batch)).backward();
//     optimizer.step();
//   }
//   join.Finish([&] { optimizer.step(); optimizer.zero_grad(); });
//
// Each forward with gradients enabled costs one small all-reduce more, and is expected to be
// followed by a backward; evaluate under at::NoGradGuard. Zero the gradients between synced
// backwards. Not with sync_batch_norm. When an exception leaves the loop, the destructor
// communicates nothing, and the other ranks' waits end by the timeout. PyTorch:
// torch.distributed.algorithms.Join, of which it differs in the step callback.
class Join {
 public:
  template <typename Wrapper>
  explicit Join(Wrapper& model, const JoinOptions& options = {}) : Join(model.replica(), options) {}
  Join(Replica& replica, const JoinOptions& options);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Collective with everything the others still do: contributes zeros (and once what no_sync had
  // accumulated here) to every backward, until all ranks have come here. Then parameters and
  // buffers become those of a rank that went on to the end. `step`, when given, is called after
  // each of those backwards, with the averaged gradients in place: a rank that steps its optimizer
  // there keeps its optimizer state equal to the others', which PyTorch lets drift. Give it on all
  // ranks or on none. A second call does nothing. Throws JoinEnded, and what collectives throw.
  void Finish(const std::function<void()>& step = nullptr);

 private:
  Replica& replica_;
  bool finished_ = false;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_JOIN_H_
