#include "medfusion/ddp/replica.h"

#include <absl/strings/str_cat.h>
#include <c10/core/GradMode.h>

#include <numeric>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"
#include "medfusion/distributed/setup.h"

namespace medfusion {
namespace {

std::shared_ptr<ProcessGroup> GroupOf(const DDPOptions& options) {
  std::shared_ptr<ProcessGroup> group = options.group ? options.group : DefaultGroup();
  if (group == nullptr) {
    throw std::invalid_argument(
        "DDPWrapper: no process group; call SetupDistributed() first or set DDPOptions::group");
  }
  return group;
}

// LibTorch's own lists repeat what is registered under several names; `shared` collects each once.
template <typename List>
std::vector<ReducerParameter> EachOnce(const List& named) {
  std::vector<ReducerParameter> list;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : named) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      list.push_back({item.key(), tensor});
    }
  }
  return list;
}

// What a rank says of itself before a forward in a Join.
constexpr int kActive = 1;
constexpr int kSynced = 2;
constexpr int kBuffers = 4;

}  // namespace

Replica::Replica(std::shared_ptr<torch::nn::Module> module, DDPOptions options)
    : module_(std::move(module)), options_(std::move(options)), group_(GroupOf(options_)) {
  if (module_ == nullptr) throw std::invalid_argument("DDPWrapper: the module is null");
  parameters_ = EachOnce(module_->named_parameters());
  buffers_ = EachOnce(module_->named_buffers());
  const absl::Status agreed = AgreeOnStatus(*group_, CheckLocally());
  if (!agreed.ok()) {
    throw std::invalid_argument(absl::StrCat("DDPWrapper: ", std::string(agreed.message())));
  }
  RequireSameOnAllRanks(*group_, Describe());

  std::vector<ReducerParameter> trained;
  std::vector<at::Tensor> buffers;
  std::vector<at::Tensor> state;
  for (const ReducerParameter& parameter : parameters_) {
    state.push_back(parameter.tensor);
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  for (const ReducerParameter& buffer : buffers_) {
    state.push_back(buffer.tensor);
    buffers.push_back(buffer.tensor);
  }
  CoalescedBroadcast(*group_, std::move(state)).Run(*group_, 0);
  if (options_.broadcast_buffers) buffer_broadcast_.emplace(*group_, std::move(buffers));
  if (options_.sync_batch_norm) {
    // A group of its own: batch norms talk in forward and backward, in an order independent of the
    // buckets'.
    std::vector<int> ranks(group_->size());
    std::iota(ranks.begin(), ranks.end(), 0);
    batch_norm_group_ = group_->NewGroup(ranks);
  }
  reducer_ = std::make_unique<Reducer>(
      group_, std::move(trained),
      ReducerOptions{options_.buckets, options_.find_unused_parameters, options_.comm_hook});
}

absl::Status Replica::CheckLocally() const {
  bool trains = false;
  for (const auto* list : {&parameters_, &buffers_}) {
    for (const auto& [name, tensor] : *list) {
      if (tensor.device().type() != group_->device_type()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", name, "' is on ", tensor.device().str(), ", but the group's backend ",
            group_->backend_name(), " serves ", c10::DeviceTypeName(group_->device_type(), true),
            "; move the module there before wrapping it"));
      }
      if (tensor.layout() != at::kStrided) {
        return absl::InvalidArgumentError(absl::StrCat("'", name, "' is sparse; DDP needs dense"));
      }
      if (!tensor.requires_grad() || list == &buffers_) continue;
      trains = true;
      if (!tensor.is_leaf() || !tensor.is_floating_point()) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter '", name, "' (", DescribeTensor(tensor),
                         ") must be a leaf of floating point to be trained"));
      }
    }
  }
  if (!trains) {
    return absl::InvalidArgumentError(
        "the module has no parameter that requires grad; there is nothing to wrap");
  }
  return absl::OkStatus();
}

std::vector<std::string> Replica::Describe() const {
  std::vector<std::string> entries;
  entries.push_back(absl::StrCat(
      "options find_unused_parameters=", options_.find_unused_parameters,
      " broadcast_buffers=", options_.broadcast_buffers,
      " sync_batch_norm=", options_.sync_batch_norm, " comm_hook=", options_.comm_hook != nullptr,
      " buckets=", options_.buckets.first_bytes, "/", options_.buckets.bytes));
  for (const auto& [name, tensor] : parameters_) {
    entries.push_back(absl::StrCat("parameter ", name, ": ", DescribeTensor(tensor)));
  }
  for (const auto& [name, tensor] : buffers_) {
    entries.push_back(absl::StrCat("buffer ", name, ": ", DescribeTensor(tensor)));
  }
  return entries;
}

std::vector<at::Tensor> Replica::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const ReducerParameter& parameter : parameters_) tensors.push_back(parameter.tensor);
  return tensors;
}

std::unique_ptr<SyncBatchNormScope> Replica::BeginForward() {
  reducer_->BeginForward();
  std::unique_ptr<SyncBatchNormScope> scope;
  if (options_.sync_batch_norm) scope = std::make_unique<SyncBatchNormScope>(batch_norm_group_);
  if (!c10::GradMode::is_enabled()) return scope;
  const bool synced = !reducer_->suspended();
  const bool buffers = synced && module_->is_training() && buffer_broadcast_.has_value() &&
                       !buffer_broadcast_->empty();
  int root = 0;
  if (join_) root = CallRoster(/*active=*/true, synced, buffers).lowest_active;
  if (buffers) buffer_broadcast_->Run(*group_, root);
  return scope;
}

void Replica::EndForward(std::span<const at::Tensor> outputs) {
  if (c10::GradMode::is_enabled()) reducer_->MarkOutputs(outputs);
}

void Replica::EnterJoin(const JoinOptions& options) {
  if (join_) throw std::logic_error("Join: this model is in a Join already");
  if (options_.sync_batch_norm) {
    throw std::invalid_argument(
        "Join: sync_batch_norm needs a batch on every rank in every step; drop the uneven end of "
        "the data instead");
  }
  join_ = options;
}

void Replica::LeaveJoin() {
  join_.reset();
  reducer_->set_divisor(group_->size());
}

Replica::Roster Replica::CallRoster(bool active, bool synced, bool buffers) {
  const int mine = (active ? kActive : 0) | (active && synced ? kSynced : 0) |
                   (active && buffers ? kBuffers : 0);
  at::Tensor table = group_->Allocate(group_->size(), at::kInt);
  table.narrow(0, group_->rank(), 1).fill_(mine);
  group_->AllReduce(table)->Wait();
  table = table.cpu();
  Roster roster;
  int flags = 0;
  std::string joined;
  for (int r = group_->size() - 1; r >= 0; --r) {
    const int entry = table.data_ptr<int32_t>()[r];
    if ((entry & kActive) == 0) {
      joined = absl::StrCat(r, joined.empty() ? "" : ", ", joined);
      continue;
    }
    ++roster.active;
    roster.lowest_active = r;
    if (roster.active > 1 && entry != flags) {
      throw std::logic_error(
          "Join: some ranks are under no_sync or in evaluation mode in this forward and others are "
          "not");
    }
    flags = entry;
  }
  roster.synced = (flags & kSynced) != 0;
  roster.buffers = (flags & kBuffers) != 0;
  if (roster.active == 0) return roster;
  last_active_ = roster.lowest_active;
  if (!joined.empty() && join_->throw_on_early_termination) {
    throw JoinEnded(absl::StrCat("Join: no more data on rank ", joined,
                                 ", and throw_on_early_termination is set"));
  }
  reducer_->set_divisor(join_->divide_by_initial_world_size ? group_->size() : roster.active);
  return roster;
}

Replica::ShadowResult Replica::Shadow(bool keep_gradients) {
  reducer_->BeginForward();
  const Roster roster = CallRoster(/*active=*/false, false, false);
  if (roster.active == 0) return ShadowResult::kEverybodyJoined;
  if (roster.buffers) buffer_broadcast_->Run(*group_, roster.lowest_active);
  if (!roster.synced) return ShadowResult::kUnsynced;
  reducer_->Shadow(keep_gradients);
  return ShadowResult::kStepped;
}

void Replica::SyncWithLastActive() {
  std::vector<at::Tensor> state = parameters();
  for (const ReducerParameter& buffer : buffers_) state.push_back(buffer.tensor);
  CoalescedBroadcast(*group_, std::move(state)).Run(*group_, last_active_);
}

}  // namespace medfusion
