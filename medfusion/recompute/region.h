// A part of forward whose saved tensors are computed again in backward.
//
// Note [Slots]
// Each tensor that autograd saves inside a region gets a slot, in order. Forward notes its shape,
// dtype and device there and drops the tensor; the hooks that autograd keeps in its place own the
// slot. When backward asks for one, the function runs again under a frame that puts what is saved
// this time into the slots that are still wanted, and backward takes it out: autograd's node, its
// edges and its parameters stay those of forward. A slot's tensor goes when it is taken, when the
// hooks go (autograd frees the graph) and when another backward begins or this one ends.
//
// A trained parameter, or a view of one, is kept as it is. It is in memory anyway, or, sharded,
// nowhere, and must then not be read to be saved.
#ifndef MEDFUSION_RECOMPUTE_REGION_H_
#define MEDFUSION_RECOMPUTE_REGION_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "medfusion/recompute/options.h"
#include "medfusion/recompute/run_state.h"
#include "medfusion/recompute/saved_tensor_engine.h"

namespace medfusion::recompute_internal {

class Region : public std::enable_shared_from_this<Region> {
 public:
  // Forward inside of the region, from construction to destruction.
  class Forward;

  explicit Region(const RecomputeOptions& options) : options_(options) {}
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 protected:
  // Runs the function again, its result is dropped.
  virtual void RunAgain() = 0;

  // Keeps an argument for RunAgain as autograd keeps a saved tensor: changes in place are found,
  // and a region around this one drops it and computes it again.
  void KeepInput(const at::Tensor& tensor);
  at::Tensor Input(size_t index) const;

 private:
  class Hooks;
  class Rerun;

  struct Slot {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    c10::Device device;
    bool wanted;  // by hooks that still exist and did not take it in this backward
    bool owned;   // by hooks that still exist, and do not keep the tensor itself
    at::Tensor tensor;
    int64_t version = 0;
  };

  // All with mutex_ held.
  size_t AddSlot(const at::Tensor& tensor, bool kept);
  at::Tensor Take(size_t index);
  void EnterBackward();
  void RunAgainFor(size_t index);
  void DropTensors() noexcept;

  const RecomputeOptions options_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<at::Tensor> plain_inputs_;  // of inference mode, which autograd cannot save
  std::vector<c10::Device> devices_;      // of the inputs, without the CPU
  std::optional<RandomState> random_;
  std::optional<AutocastState> autocast_;

  // Recursive: the function, when it runs again, may end the life of its own hooks.
  std::recursive_mutex mutex_;
  std::vector<Slot> slots_;
  bool in_forward_ = false;
  int backward_ = -1;  // the graph task whose tensors are in the slots
};

class Region::Forward final : public SavedTensorFrame {
 public:
  explicit Forward(std::shared_ptr<Region> region);
  ~Forward() override;
  std::unique_ptr<torch::autograd::SavedVariableHooks> MakeHooks() override;

 private:
  const std::shared_ptr<Region> region_;
  const PlainTorchScript torchscript_;
};

}  // namespace medfusion::recompute_internal

#endif  // MEDFUSION_RECOMPUTE_REGION_H_
