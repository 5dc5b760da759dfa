// The seam between autograd and recomputation: who gets the tensors that autograd saves.
//
// Note [An engine that asks]
// Autograd asks its engine, for each tensor that it saves, for a pair of hooks to pack and unpack
// it. LibTorch's own engine has none and Python's has Python's; an engine of ours is put in front
// of whichever is there. It passes every call on, so that backward runs exactly where and how it
// did, and answers that one question itself on a thread that is inside of a region. What
// Engine does without a virtual function (queue_callback, is_checkpoint_valid) it does with
// the current thread's graph task, whatever the engine.
#ifndef MEDFUSION_RECOMPUTE_SAVED_TENSOR_ENGINE_H_
#define MEDFUSION_RECOMPUTE_SAVED_TENSOR_ENGINE_H_

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace medfusion::recompute_internal {

// Gets what autograd saves on a thread, from construction to destruction, which nest.
class SavedTensorFrame {
 public:
  // Throws c10::Error when another engine was installed after ours.
  SavedTensorFrame();
  virtual ~SavedTensorFrame();
  SavedTensorFrame(const SavedTensorFrame&) = delete;
  SavedTensorFrame& operator=(const SavedTensorFrame&) = delete;

  // For one tensor. Called on the frame's thread.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> MakeHooks() = 0;

 private:
  SavedTensorFrame* const outer_;
};

}  // namespace medfusion::recompute_internal

#endif  // MEDFUSION_RECOMPUTE_SAVED_TENSOR_ENGINE_H_
