#include "medfusion/fsdp/optimizer_guard.h"

#include <dlfcn.h>
#include <torch/optim/lbfgs.h>
#include <unwind.h>

#include <stdexcept>

namespace medfusion {
namespace {

constexpr int kAlways = 8;
constexpr int kEvery = 64;

[[noreturn]] void Refuse() {
  throw std::invalid_argument(
      "torch::optim::LBFGS on an FSDPWrapper: its dot products and line search need whole "
      "parameters, and each rank has slices of them. Use an elementwise optimizer (SGD, Adam, "
      "AdamW, RMSprop, Adagrad), or ShardingStrategy::NO_SHARD, where every rank has all");
}

// Null when LibTorch is linked in another way than as a shared library; then nothing is watched.
const void* LbfgsStep() {
  // The mangled name: a pointer to a virtual member function does not give the address.
  static const void* const step =
      dlsym(RTLD_DEFAULT, "_ZN5torch5optim5LBFGS4stepESt8functionIFN2at6TensorEvEE");
  return step;
}

_Unwind_Reason_Code Visit(_Unwind_Context* context, void* found) {
  auto* address = reinterpret_cast<void*>(_Unwind_GetIP(context));
  if (address == nullptr) return _URC_END_OF_STACK;
  // The return address may be the first of the next function.
  if (_Unwind_FindEnclosingFunction(static_cast<char*>(address) - 1) != LbfgsStep()) {
    return _URC_NO_REASON;
  }
  *static_cast<bool*>(found) = true;
  return _URC_NORMAL_STOP;
}

}  // namespace

void RequireElementwise(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) Refuse();
}

void LbfgsWatch::OnForward() {
  if (forwards_++ >= kAlways && forwards_ % kEvery != 0) return;
  if (LbfgsStep() == nullptr) return;
  bool found = false;
  _Unwind_Backtrace(&Visit, &found);
  if (found) Refuse();
}

}  // namespace medfusion
