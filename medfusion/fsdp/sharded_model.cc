#include "medfusion/fsdp/sharded_model.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "medfusion/base/log.h"
#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"
#include "medfusion/distributed/setup.h"

namespace medfusion {
namespace {

std::string DescribeTensor(const char* kind, const std::pair<std::string, at::Tensor>& entry) {
  const at::Tensor& tensor = entry.second;
  return absl::StrCat(
      kind, " ", entry.first, ": ", std::string(c10::toString(tensor.scalar_type())), " [",
      absl::StrJoin(tensor.sizes(), ", "), "] strides [", absl::StrJoin(tensor.strides(), ", "),
      "]", tensor.requires_grad() ? " trained" : "");
}

std::string DtypeName(const std::optional<at::ScalarType>& dtype) {
  return dtype ? std::string(c10::toString(*dtype)) : "the parameters'";
}

// The options, the tensors and the units, one a line.
std::vector<std::string> Describe(const ModuleTree& tree, const std::vector<PlannedUnit>& plan,
                                  const FSDPOptions& options) {
  std::vector<std::string> lines = {
      absl::StrCat("sharding_strategy: ", ShardingStrategyName(options.sharding_strategy)),
      absl::StrCat("max_resident_units: ", options.max_resident_units),
      absl::StrCat("prefetch: ", options.forward_prefetch, " ", options.backward_prefetch),
      absl::StrCat("max_gradients_in_flight: ", options.max_gradients_in_flight),
      absl::StrCat("param_dtype: ", DtypeName(options.mixed_precision.param_dtype)),
      absl::StrCat("reduce_dtype: ", DtypeName(options.mixed_precision.reduce_dtype)),
      absl::StrCat("sync_module_states: ", options.sync_module_states ? "on" : "off")};
  for (const auto& entry : tree.parameters) lines.push_back(DescribeTensor("parameter", entry));
  for (const auto& entry : tree.buffers) lines.push_back(DescribeTensor("buffer", entry));
  for (const PlannedUnit& unit : plan) {
    lines.push_back(
        absl::StrCat("unit ", unit.name, ": parameters ", absl::StrJoin(unit.parameters, ", ")));
  }
  return lines;
}

void RequireSameOnAllRanks(ProcessGroup& group, const std::vector<std::string>& lines) {
  const std::vector<std::string> texts = group.AllGatherBytes(absl::StrJoin(lines, "\n"));
  const std::vector<std::string> first = absl::StrSplit(texts[0], '\n');
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::vector<std::string> other = absl::StrSplit(texts[rank], '\n');
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::string here = i < first.size() ? first[i] : "nothing";
      const std::string there = i < other.size() ? other[i] : "nothing";
      if (here == there) continue;
      throw std::invalid_argument(absl::StrCat("FSDPWrapper: ranks differ: rank 0 has '", here,
                                               "', rank ", rank, " has '", there, "'"));
    }
  }
}

void RequireUsable(const ModuleTree& tree, const FSDPOptions& options, ProcessGroup& group) {
  if (options.max_resident_units < 1) {
    throw std::invalid_argument(absl::StrCat("max_resident_units is ", options.max_resident_units,
                                             "; expected at least 1"));
  }
  for (const auto& [option, value] :
       {std::pair{"forward_prefetch", options.forward_prefetch},
        std::pair{"backward_prefetch", options.backward_prefetch},
        std::pair{"max_gradients_in_flight", options.max_gradients_in_flight}}) {
    if (value < 0) {
      throw std::invalid_argument(absl::StrCat(option, " is ", value, "; expected 0 or more"));
    }
  }
  const MixedPrecision& mixed = options.mixed_precision;
  for (const auto& [option, dtype] :
       {std::pair{"param_dtype", mixed.param_dtype}, std::pair{"reduce_dtype", mixed.reduce_dtype},
        std::pair{"output_dtype", mixed.output_dtype}}) {
    if (dtype && !c10::isFloatingType(*dtype)) {
      throw std::invalid_argument(absl::StrCat("mixed_precision.", option, " is ", DtypeName(dtype),
                                               "; expected a floating-point dtype"));
    }
  }
  const InitialValues values(options.param_init_fn, group.device(),
                             !options.sync_module_states || group.rank() == 0);
  for (const auto& [name, tensor] : tree.parameters) {
    values.RequireSource("parameter", name, tensor);
    if ((!tensor.is_meta() && tensor.device().type() != group.device_type()) ||
        tensor.layout() != at::kStrided) {
      throw std::invalid_argument(absl::StrCat(
          "FSDPWrapper: parameter '", name, "' is on ", tensor.device().str(),
          " or not dense; backend ", group.backend_name(), " takes dense tensors on ",
          c10::DeviceTypeName(group.device_type(), true), "; move the module before wrapping it"));
    }
    if (!tensor.is_leaf()) {
      throw std::invalid_argument(
          absl::StrCat("FSDPWrapper: parameter '", name, "' is computed from others, not a leaf"));
    }
    if (tensor.key_set().has(kPagedKey)) {
      throw std::invalid_argument(absl::StrCat("FSDPWrapper: parameter '", name,
                                               "' is sharded already; wrap a module once"));
    }
  }
  for (const auto& [name, tensor] : tree.buffers) values.RequireSource("buffer", name, tensor);
}

// See MixedPrecision::param_dtype for what keeps its own.
at::ScalarType ComputeDtype(const ModuleTree& tree, int parameter, const MixedPrecision& mixed) {
  const auto& [name, tensor] = tree.parameters[parameter];
  if (!mixed.param_dtype || !tensor.is_floating_point()) return tensor.scalar_type();
  if (mixed.keep_precision && mixed.keep_precision(name)) return tensor.scalar_type();
  const std::string statistics = name.substr(0, name.rfind('.') + 1) + "running_mean";
  for (const auto& [buffer, values] : tree.buffers) {
    if (buffer == statistics) return tensor.scalar_type();
  }
  return *mixed.param_dtype;
}

std::vector<int> AllOf(const ProcessGroup& group) {
  std::vector<int> ranks(group.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

const char* ShardingStrategyName(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::FULL_SHARD:
      return "FULL_SHARD";
    case ShardingStrategy::SHARD_GRAD_OP:
      return "SHARD_GRAD_OP";
    case ShardingStrategy::NO_SHARD:
      return "NO_SHARD";
    case ShardingStrategy::HYBRID_SHARD:
      return "HYBRID_SHARD";
  }
  return "unknown";
}

ShardedModel::ShardedModel(ModuleTree tree, FSDPOptions options) {
  group_ = options.mesh ? options.mesh->world() : options.group ? options.group : DefaultGroup();
  if (group_ == nullptr) {
    throw std::invalid_argument(
        "FSDPWrapper: there is no process group; call SetupDistributed() first, or pass "
        "FSDPOptions::group");
  }
  const std::vector<PlannedUnit> plan = PlanOnAllRanks(tree, options);
  ResolveGroups(options);
  mixed_precision_ = options.mixed_precision;
  buffers_ = std::make_unique<FullBuffers>(group_->device());
  gradient_buffers_ = std::make_unique<FullBuffers>(group_->device());
  pager_ = std::make_unique<Pager>(
      *shard_group_,
      PagerOptions{options.max_resident_units, options.forward_prefetch, options.backward_prefetch,
                   options.sharding_strategy == ShardingStrategy::SHARD_GRAD_OP});
  const InitialValues values(options.param_init_fn, group_->device(),
                             !options.sync_module_states || group_->rank() == 0);
  MakeUnits(tree, plan, options, values);
  MaterializeBuffers(tree, values, options.sync_module_states);
  if (options.sync_module_states) {
    c10::AutoGradMode no_grad(false);
    for (const auto& [name, buffer] : tree.buffers) {
      at::Tensor dense = buffer.contiguous();
      if (dense.numel() > 0) group_->Broadcast(dense, 0)->Wait();
      if (!dense.is_same(buffer)) buffer.copy_(dense);
    }
  }
  ListSlices(tree);
  std::vector<FlatParameter*> units;
  for (const auto& unit : units_) units.push_back(unit.get());
  pager_->SetUnits(units);
  reducer_ = std::make_unique<GradientReducer>(
      units, reduce_groups_,
      GradientReducerOptions{options.mixed_precision.reduce_dtype, options.max_gradients_in_flight},
      *group_, *pager_, *gradient_buffers_);
}

ShardedModel::~ShardedModel() = default;

std::vector<PlannedUnit> ShardedModel::PlanOnAllRanks(const ModuleTree& tree,
                                                      const FSDPOptions& options) const {
  std::vector<PlannedUnit> plan;
  absl::Status status;
  try {
    RequireUsable(tree, options, *group_);
    std::vector<int64_t> numels;
    for (const auto& [name, tensor] : tree.parameters) numels.push_back(tensor.numel());
    plan = PlanUnits(tree.root, numels,
                     {options.min_num_params, options.unit_predicate, options.unit_names});
  } catch (const std::exception& error) {
    status = absl::InvalidArgumentError(error.what());
  }
  // Ranks must not go on alone to the next collective.
  status = AgreeOnStatus(*group_, status);
  if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
  RequireSameOnAllRanks(*group_, Describe(tree, plan, options));
  return plan;
}

void ShardedModel::ResolveGroups(FSDPOptions& options) {
  switch (options.sharding_strategy) {
    case ShardingStrategy::FULL_SHARD:
    case ShardingStrategy::SHARD_GRAD_OP:
      shard_group_ = group_;
      break;
    case ShardingStrategy::NO_SHARD: {
      const int alone = group_->rank();
      shard_group_ = group_->Split(alone);
      if (group_->size() > 1) reduce_groups_.replicate = group_->NewGroup(AllOf(*group_));
      break;
    }
    case ShardingStrategy::HYBRID_SHARD: {
      if (!options.mesh) {
        auto mesh = DeviceMesh::Create(group_, 0, 0);
        if (!mesh.ok()) throw StatusError(mesh.status());
        options.mesh = *std::move(mesh);
      }
      shard_group_ = options.mesh->shard();
      if (options.mesh->replicate()->size() > 1) {
        reduce_groups_.replicate =
            options.mesh->replicate()->NewGroup(AllOf(*options.mesh->replicate()));
      }
      break;
    }
  }
  if (shard_group_->size() > 1) reduce_groups_.shard = shard_group_->NewGroup(AllOf(*shard_group_));
}

void ShardedModel::MakeUnits(const ModuleTree& tree, const std::vector<PlannedUnit>& plan,
                             const FSDPOptions& options, const InitialValues& values) {
  places_.resize(tree.parameters.size());
  for (const PlannedUnit& unit : plan) {
    std::map<std::pair<at::ScalarType, at::ScalarType>, std::vector<int>> by_dtype;
    for (int p : unit.parameters) {
      by_dtype[{tree.parameters[p].second.scalar_type(),
                ComputeDtype(tree, p, options.mixed_precision)}]
          .push_back(p);
    }
    for (const auto& [dtypes, indices] : by_dtype) {
      std::vector<std::pair<std::string, at::Tensor>> members;
      for (int p : indices) {
        places_[p] = {static_cast<int>(units_.size()), static_cast<int>(members.size())};
        members.push_back(tree.parameters[p]);
      }
      const std::string name =
          by_dtype.size() == 1
              ? unit.name
              : absl::StrCat(unit.name, " (", std::string(c10::toString(dtypes.second)), ")");
      units_.push_back(std::make_unique<FlatParameter>(
          name, members, *shard_group_, options.sync_module_states ? group_.get() : nullptr, values,
          FlatParameter::Placement{dtypes.second, options.cpu_offload}, pager_.get(), *buffers_));
    }
  }
}

void ShardedModel::MaterializeBuffers(const ModuleTree& tree, const InitialValues& values,
                                      bool sync) const {
  absl::Status computed;
  for (const auto& [name, buffer] : tree.buffers) {
    try {
      values.Materialize(name, buffer);
    } catch (const std::exception& error) {
      computed = absl::InternalError(
          absl::StrCat("initial values of buffer '", name, "': ", error.what()));
    }
  }
  if (sync) computed = AgreeOnStatus(*group_, computed);
  if (!computed.ok()) throw std::runtime_error(std::string(computed.message()));
}

at::Tensor ShardedModel::CastInput(const at::Tensor& tensor) const {
  const bool cast = mixed_precision_.param_dtype && mixed_precision_.cast_forward_inputs &&
                    tensor.defined() && tensor.is_floating_point();
  return cast ? tensor.to(*mixed_precision_.param_dtype) : tensor;
}

at::Tensor ShardedModel::CastOutput(const at::Tensor& tensor) const {
  const bool cast = mixed_precision_.output_dtype && tensor.defined() && tensor.is_floating_point();
  return cast ? tensor.to(*mixed_precision_.output_dtype) : tensor;
}

void ShardedModel::ListSlices(const ModuleTree& tree) {
  for (size_t p = 0; p < tree.parameters.size(); ++p) {
    const auto [unit, member] = places_[p];
    slices_.emplace_back(tree.parameters[p].first, units_[unit]->slices()[member]);
  }
}

std::vector<ShardedTensor> ShardedModel::DescribeState() const {
  std::vector<ShardedTensor> state;
  for (const auto& [u, m] : places_) {
    const FlatParameter& unit = *units_[u];
    const FlatParameter::Member& member = unit.members()[m];
    state.push_back({member.name, member.sizes, member.strides,
                     unit.layout().Slice(m, shard_group_->rank()).parameter_offset,
                     unit.slices()[m]});
  }
  return state;
}

void ShardedModel::ZeroGrad(bool set_to_none) {
  reducer_->Forget();
  for (const auto& [name, slice] : slices_) {
    at::Tensor& gradient = slice.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      gradient.zero_();
    }
  }
}

GradientNorm ShardedModel::ClipGradNorm(double max_norm) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, slice] : slices_) {
    if (slice.grad().defined()) gradients.push_back(slice.grad());
  }
  const GradientNorm result = ClipGlobalGradientNorm(gradients, max_norm, *shard_group_, *group_);
  if (!result.finite) {
    ++nonfinite_gradients_;
    if (group_->rank() == 0) {
      LogWarning(absl::StrCat("FSDPWrapper: the norm of the gradients is ", result.norm,
                              ", for the ", nonfinite_gradients_,
                              ". time; they are left as they are, and the step is to be skipped"));
    }
  }
  return result;
}

void ShardedModel::BeginFull(bool writeback) {
  reducer_->Abandon();
  pager_->BeginFull(writeback);
}

ShardedModel::ForwardScope::ForwardScope(ShardedModel& model) : model_(model) {
  if (c10::GradMode::is_enabled() && model.shard_group_->size() > 1) model.lbfgs_watch_.OnForward();
  model_.pager_->BeginForward();
}

ShardedModel::ForwardScope::~ForwardScope() {
  if (!ended_) model_.pager_->FailForward();
}

void ShardedModel::ForwardScope::End() {
  ended_ = true;
  model_.pager_->EndForward();
}

}  // namespace medfusion
