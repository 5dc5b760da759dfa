// Where the values of parameters and buffers come from that have none yet.
#ifndef MEDFUSION_FSDP_INITIAL_VALUES_H_
#define MEDFUSION_FSDP_INITIAL_VALUES_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace medfusion {

// See FSDPOptions::param_init_fn.
using ParamInitFn = std::function<void(const std::string& name, at::Tensor& tensor)>;

class InitialValues {
 public:
  // `wanted`: false where another rank's values are taken, which saves their computation.
  InitialValues(ParamInitFn fn, c10::Device device, bool wanted)
      : fn_(std::move(fn)), device_(device), wanted_(wanted) {}

  bool wanted() const { return wanted_; }

  // Throws std::invalid_argument that names the tensor when its values are wanted, it is on the
  // meta device, was not made inside DeferInit, and there is no function.
  void RequireSource(const char* kind, const std::string& name, const at::Tensor& tensor) const;

  // The values of `tensor`: itself when it has memory; on the device otherwise, and nobody else's.
  at::Tensor Of(const std::string& name, const at::Tensor& tensor) const;

  // A meta tensor moves to the device, in place, without memory: shape and strides are kept.
  void Place(const at::Tensor& tensor) const;
  // A meta buffer moves to the device, in place, with its values if they are wanted.
  void Materialize(const std::string& name, const at::Tensor& buffer) const;

 private:
  const ParamInitFn fn_;
  const c10::Device device_;
  const bool wanted_;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_INITIAL_VALUES_H_
