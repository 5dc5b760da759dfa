// The settings that a function runs under, so that it runs under the same again.
#ifndef MEDFUSION_RECOMPUTE_RUN_STATE_H_
#define MEDFUSION_RECOMPUTE_RUN_STATE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>

#include <array>
#include <utility>
#include <vector>

namespace medfusion::recompute_internal {

// Where the default generators of some devices are in their streams.
class RandomState {
 public:
  explicit RandomState(const std::vector<c10::Device>& devices);
  // The same generators' present state.
  RandomState Now() const;
  void Set() const;

 private:
  RandomState() = default;
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Autocast on this thread, for the CPU and CUDA.
struct AutocastState {
  struct OfDevice {
    bool enabled;
    at::ScalarType dtype;
  };
  static AutocastState Now();
  void Set() const;
  bool any() const { return devices[0].enabled || devices[1].enabled; }

  std::array<OfDevice, 2> devices;
  bool cache;
};

// Note [TorchScript runs plainly]
// TorchScript's executor profiles a graph's first run and replaces parts of it by functions with
// derivatives of their own in the next, which save other tensors. Within a region, in both runs, it
// runs the graph as it is written.
class PlainTorchScript {
 public:
  PlainTorchScript();
  ~PlainTorchScript();
  PlainTorchScript(const PlainTorchScript&) = delete;
  PlainTorchScript& operator=(const PlainTorchScript&) = delete;

 private:
  const bool before_;
};

// Sets what forward ran under, and at its end what was before.
class ForwardState {
 public:
  ForwardState(const RandomState& random, const AutocastState& autocast);
  ~ForwardState();
  ForwardState(const ForwardState&) = delete;
  ForwardState& operator=(const ForwardState&) = delete;

 private:
  const RandomState random_;
  const AutocastState autocast_;
  const bool casts_;
  const c10::AutoGradMode grad_mode_{true};
  const PlainTorchScript torchscript_;
};

}  // namespace medfusion::recompute_internal

#endif  // MEDFUSION_RECOMPUTE_RUN_STATE_H_
