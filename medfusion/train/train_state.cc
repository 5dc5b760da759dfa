#include "medfusion/train/train_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "medfusion/base/status.h"
#include "medfusion/data/tensors.h"

namespace medfusion {
namespace {

using torch::optim::AdamWParamState;

constexpr char kFirstMoment[] = ".exp_avg";
constexpr char kSecondMoment[] = ".exp_avg_sq";
constexpr char kSteps[] = ".step";

at::Tensor Copy(const at::Tensor& tensor) { return tensor.detach().cpu().clone(); }

absl::StatusOr<at::Tensor> Find(const NamedTensors& from, const std::string& name,
                                at::IntArrayRef sizes, const at::Tensor& like) {
  const auto found = from.find(name);
  if (found == from.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has no ", name, "; it is of another model"));
  }
  if (found->second.sizes() != sizes || found->second.scalar_type() != like.scalar_type()) {
    const at::Tensor expected = at::empty_strided(sizes, std::vector<int64_t>(sizes.size(), 0),
                                                  like.options().device(at::kCPU));
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint's ", name, " is ",
                                                   Describe(found->second), ", but the model's is ",
                                                   Describe(expected), "; it is of another model"));
  }
  return found->second;
}

absl::Status CopyInto(const NamedTensors& from, const std::string& name, const at::Tensor& to) {
  MEDFUSION_ASSIGN_OR_RETURN(const at::Tensor saved, Find(from, name, to.sizes(), to));
  const at::NoGradGuard no_grad;
  to.copy_(saved);
  return absl::OkStatus();
}

int64_t GlobalNumel(const ShardedTensor& tensor) {
  return std::accumulate(tensor.global_shape.begin(), tensor.global_shape.end(), int64_t{1},
                         std::multiplies<>());
}

const AdamWParamState* FindState(torch::optim::AdamW& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end()
             ? nullptr
             : static_cast<const AdamWParamState*>(found->second.get());
}

// What one rank holds of one parameter.
struct Holding {
  int64_t offset = 0;
  int64_t numel = 0;
  int64_t step = -1;  // -1 without optimizer state
};

// Collective. By rank, then by parameter.
std::vector<std::vector<Holding>> GatherHoldings(const std::vector<ShardedTensor>& parameters,
                                                 torch::optim::AdamW& optimizer,
                                                 ProcessGroup& group) {
  std::vector<Holding> own;
  for (const ShardedTensor& parameter : parameters) {
    const AdamWParamState* state = FindState(optimizer, parameter.local);
    own.push_back(
        {parameter.offset, parameter.local.numel(), state == nullptr ? -1 : state->step()});
  }
  std::vector<std::vector<Holding>> all;
  for (const std::string& bytes : group.AllGatherBytes(std::string_view(
           reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Holding)))) {
    all.emplace_back(bytes.size() / sizeof(Holding));
    std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }
  return all;
}

// Collective. The whole of a tensor of which every rank has `local`; replicas of a part have the
// same, of which the first rank's counts.
at::Tensor Assemble(const ShardedTensor& parameter, const at::Tensor& local,
                    const std::vector<std::vector<Holding>>& holdings, size_t index,
                    ProcessGroup& group) {
  const Holding& own = holdings[group.rank()][index];
  bool first = true;
  bool whole = true;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Holding& other = holdings[rank][index];
    whole = whole && other.numel == GlobalNumel(parameter) && other.step >= 0;
    if (rank < group.rank() && other.offset == own.offset && other.numel == own.numel)
      first = false;
  }
  if (whole) return Copy(local);
  at::Tensor flat =
      at::zeros({GlobalNumel(parameter)}, parameter.local.options().device(group.device()));
  if (first && local.defined()) flat.narrow(0, own.offset, own.numel).copy_(local.flatten());
  group.AllReduce(flat)->Wait();
  return flat.as_strided(parameter.global_shape, parameter.global_strides).cpu().contiguous();
}

// The part of `whole` that parameter.local is of the parameter.
void CopyPart(const at::Tensor& whole, const ShardedTensor& parameter, const at::Tensor& to) {
  if (to.numel() == whole.numel() && to.sizes() == whole.sizes()) {
    to.copy_(whole);
    return;
  }
  const at::Tensor ordered =
      at::empty_strided(parameter.global_shape, parameter.global_strides, whole.options())
          .copy_(whole);
  to.copy_(ordered.as_strided({whole.numel()}, {1}).narrow(0, parameter.offset, to.numel()));
}

}  // namespace

void CaptureModule(ModelStrategy& model, const std::string& prefix, NamedTensors& into) {
  const auto scope = model.WholeParameters(/*writeback=*/false);
  for (const auto& entry : model.module().named_parameters()) {
    into[prefix + entry.key()] = Copy(entry.value());
  }
  for (const auto& entry : model.module().named_buffers()) {
    into[prefix + entry.key()] = Copy(entry.value());
  }
}

absl::Status RestoreModule(const NamedTensors& from, const std::string& prefix,
                           ModelStrategy& model) {
  const auto scope = model.WholeParameters(/*writeback=*/true);
  for (const auto& entry : model.module().named_parameters()) {
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, prefix + entry.key(), entry.value()));
  }
  for (const auto& entry : model.module().named_buffers()) {
    MEDFUSION_RETURN_IF_ERROR(CopyInto(from, prefix + entry.key(), entry.value()));
  }
  return absl::OkStatus();
}

void CaptureAdamW(const ModelStrategy& model, ProcessGroup& group, torch::optim::AdamW& optimizer,
                  const std::string& prefix, NamedTensors& into) {
  const at::NoGradGuard no_grad;
  const std::vector<ShardedTensor> parameters = model.DescribeState();
  const auto holdings = GatherHoldings(parameters, optimizer, group);
  for (size_t i = 0; i < parameters.size(); ++i) {
    int64_t step = -1;
    for (const auto& rank : holdings) step = std::max(step, rank[i].step);
    if (step < 0) continue;  // it has had no gradient yet
    const AdamWParamState* state = FindState(optimizer, parameters[i].local);
    const std::string name = prefix + parameters[i].name;
    into[name + kFirstMoment] = Assemble(
        parameters[i], state == nullptr ? at::Tensor() : state->exp_avg(), holdings, i, group);
    into[name + kSecondMoment] = Assemble(
        parameters[i], state == nullptr ? at::Tensor() : state->exp_avg_sq(), holdings, i, group);
    into[name + kSteps] = at::scalar_tensor(step, at::kLong);
  }
}

absl::Status RestoreAdamW(const NamedTensors& from, const std::string& prefix,
                          const ModelStrategy& model, torch::optim::AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  for (const ShardedTensor& parameter : model.DescribeState()) {
    const std::string name = prefix + parameter.name;
    if (!from.contains(name + kSteps)) continue;
    const at::Tensor like = parameter.local.detach();
    auto state = std::make_unique<AdamWParamState>();
    state->exp_avg(at::empty_like(like));
    state->exp_avg_sq(at::empty_like(like));
    MEDFUSION_ASSIGN_OR_RETURN(const at::Tensor first,
                               Find(from, name + kFirstMoment, parameter.global_shape, like));
    MEDFUSION_ASSIGN_OR_RETURN(const at::Tensor second,
                               Find(from, name + kSecondMoment, parameter.global_shape, like));
    CopyPart(first, parameter, state->exp_avg());
    CopyPart(second, parameter, state->exp_avg_sq());
    state->step(from.at(name + kSteps).item<int64_t>());
    optimizer.state()[parameter.local.unsafeGetTensorImpl()] = std::move(state);
  }
  return absl::OkStatus();
}

}  // namespace medfusion
