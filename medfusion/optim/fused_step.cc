#include "medfusion/optim/fused_step.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <sstream>
#include <stdexcept>
#include <utility>

namespace medfusion {
namespace {

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Same elements at the same places; strides of dimensions of one element say nothing.
bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

bool Follows(const at::Tensor& before, const at::Tensor& after) {
  return before.storage().unsafeGetStorageImpl() == after.storage().unsafeGetStorageImpl() &&
         before.storage_offset() + before.numel() == after.storage_offset();
}

// Whether they can be one tensor to a kernel; both are dense in memory.
bool Joinable(const StepMember& before, const StepMember& after) {
  return before.age == after.age &&
         before.parameter.scalar_type() == after.parameter.scalar_type() &&
         before.parameter.numel() > 0 && after.parameter.numel() > 0 &&
         Follows(before.parameter, after.parameter) && Follows(before.gradient, after.gradient);
}

at::Tensor Over(const at::Tensor& first, int64_t numel) {
  return first.detach().as_strided({numel}, {1}, first.storage_offset());
}

void Close(StepRun& run) {
  const StepMember& first = run.members.front();
  if (run.members.size() == 1) {
    run.parameter = first.parameter;
    run.gradient = first.gradient;
    return;
  }
  int64_t numel = 0;
  for (const StepMember& member : run.members) numel += member.parameter.numel();
  run.parameter = Over(first.parameter, numel);
  run.gradient = Over(first.gradient, numel);
}

std::string WhyNot(const at::Tensor& parameter, const at::Tensor& gradient, bool allow_sparse) {
  switch (parameter.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      break;
    default:
      return Text("its dtype is ", parameter.scalar_type(),
                  "; expected float16, bfloat16, float32 or float64");
  }
  if (parameter.layout() != at::kStrided) return "it is not a dense tensor";
  if (gradient.is_sparse()) {
    return allow_sparse ? "" : "its gradient is sparse; make it dense (gradient.to_dense())";
  }
  if (gradient.scalar_type() != parameter.scalar_type() ||
      gradient.device() != parameter.device() || gradient.sizes() != parameter.sizes()) {
    return Text("its gradient is ", gradient.scalar_type(), gradient.sizes(), " on ",
                gradient.device(), ", the parameter ", parameter.scalar_type(), parameter.sizes(),
                " on ", parameter.device());
  }
  if (!parameter.is_non_overlapping_and_dense()) {
    return Text("its memory overlaps or has gaps (sizes ", parameter.sizes(), ", strides ",
                parameter.strides(), "); make it contiguous");
  }
  return "";
}

}  // namespace

std::vector<StepMember> CollectMembers(
    const torch::optim::OptimizerParamGroup& group, size_t index, std::string_view optimizer,
    bool allow_sparse, const std::function<int64_t(const at::Tensor& parameter)>& age) {
  std::vector<StepMember> members;
  const std::vector<at::Tensor>& parameters = group.params();
  members.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    StepMember member{parameter, gradient, age(parameter), index, i};
    if (const std::string why = WhyNot(parameter, gradient, allow_sparse); !why.empty()) {
      throw std::invalid_argument(Text(optimizer, " cannot update ", PlaceOf(member), ": ", why));
    }
    // ATen's CPU kernels walk all tensors in the parameter's order of memory.
    if (!gradient.is_sparse() && !SameLayout(gradient, parameter)) {
      member.gradient = at::empty_like(parameter).copy_(gradient);
    }
    members.push_back(std::move(member));
  }
  return members;
}

std::string PlaceOf(const StepMember& member) {
  return Text("parameter ", member.index, " of group ", member.group);
}

std::vector<StepBatch> MakeBatches(std::vector<StepMember> members) {
  std::vector<StepBatch> batches;
  for (StepMember& member : members) {
    const c10::Device device = member.parameter.device();
    const c10::ScalarType dtype = member.parameter.scalar_type();
    StepBatch* batch = nullptr;
    for (StepBatch& candidate : batches) {
      if (candidate.device == device && candidate.dtype == dtype) batch = &candidate;
    }
    if (batch == nullptr) batch = &batches.emplace_back(StepBatch{device, dtype, {}});
    if (batch->runs.empty() || !Joinable(batch->runs.back().members.back(), member)) {
      batch->runs.emplace_back();
    }
    batch->runs.back().members.push_back(std::move(member));
  }
  for (StepBatch& batch : batches) {
    for (StepRun& run : batch.runs) Close(run);
  }
  return batches;
}

void CheckState(const StepMember& member, const at::Tensor& state, std::string_view name) {
  if (!state.defined() || state.sizes() == member.parameter.sizes()) return;
  throw std::invalid_argument(Text("The optimizer's ", name, " of ", PlaceOf(member), " has shape ",
                                   state.sizes(), ", the parameter ", member.parameter.sizes(),
                                   ": it comes from another model, or from another sharding"));
}

at::Tensor JoinStates(const StepRun& run, const std::vector<at::Tensor*>& states) {
  const at::Tensor& first = run.members.front().parameter;
  bool in_place = true;
  for (size_t i = 0; i < states.size(); ++i) {
    const at::Tensor& state = *states[i];
    in_place = in_place && state.defined() && state.scalar_type() == first.scalar_type() &&
               state.device() == first.device() && SameLayout(state, run.members[i].parameter) &&
               (i == 0 || Follows(*states[i - 1], state));
  }
  if (in_place) return states.size() == 1 ? *states[0] : Over(*states[0], run.parameter.numel());

  at::Tensor joined = at::zeros_like(run.parameter);
  int64_t offset = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const at::Tensor& parameter = run.members[i].parameter;
    at::Tensor own = states.size() == 1
                         ? joined
                         : joined.as_strided(parameter.sizes(), parameter.strides(), offset);
    if (states[i]->defined()) own.copy_(*states[i]);
    *states[i] = std::move(own);
    offset += parameter.numel();
  }
  return joined;
}

void MarkChanged(const StepRun& run) {
  for (const StepMember& member : run.members) {
    if (!member.parameter.is_inference()) {
      member.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace medfusion
