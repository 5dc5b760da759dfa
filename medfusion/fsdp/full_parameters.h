// Scopes on an FSDPWrapper: all parameters whole, and gradients kept back.
#ifndef MEDFUSION_FSDP_FULL_PARAMETERS_H_
#define MEDFUSION_FSDP_FULL_PARAMETERS_H_

#include "medfusion/fsdp/sharded_model.h"

namespace medfusion {

// While it lives, every parameter of the wrapped module is whole on every rank and can be read like
// any tensor; with `writeback` also written, and each rank keeps its own part of what it wrote (so
// write the same on all ranks). Holds the whole model in memory. Scopes do not nest, and forward
// and backward are refused inside.
//
//   { medfusion::FullParameters scope(model); torch::save(net, "net.pt"); }
//
// Both ends are collective. A backward that failed before is forgotten. PyTorch:
// summon_full_params.
class FullParameters {
 public:
  template <typename Wrapper>
  explicit FullParameters(Wrapper& wrapper, bool writeback = true)
      : model_(wrapper.sharded_model()) {
    model_.BeginFull(writeback);
  }
  ~FullParameters() { model_.EndFull(); }
  FullParameters(const FullParameters&) = delete;
  FullParameters& operator=(const FullParameters&) = delete;

 private:
  ShardedModel& model_;
};

// See FSDPWrapper::no_sync.
class NoReduceGuard {
 public:
  explicit NoReduceGuard(GradientReducer& reducer) : reducer_(reducer) { reducer_.Suspend(); }
  ~NoReduceGuard() { reducer_.Resume(); }
  NoReduceGuard(const NoReduceGuard&) = delete;
  NoReduceGuard& operator=(const NoReduceGuard&) = delete;

 private:
  GradientReducer& reducer_;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FULL_PARAMETERS_H_
