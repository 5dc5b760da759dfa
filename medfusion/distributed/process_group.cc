#include "medfusion/distributed/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/backend.h"
#include "medfusion/distributed/c10d_transport.h"
#include "medfusion/distributed/process_group_engine.h"
#include "medfusion/distributed/rank_list.h"
#include "medfusion/distributed/roll_call.h"
#include "medfusion/distributed/task.h"

namespace medfusion {
namespace {

// How long ranks whose collective failed wait for a sign of life from the others before they blame
// them.
constexpr auto kBlamePatience = std::chrono::seconds(2);

}  // namespace

std::string DescribeForCall(const at::Tensor& tensor) {
  return absl::StrCat(std::string(c10::toString(tensor.scalar_type())), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

class ProcessGroup::TrackedWork : public Work {
 public:
  TrackedWork(std::shared_ptr<ProcessGroup> group, std::string call, std::shared_ptr<Task> task)
      : group_(std::move(group)), call_(std::move(call)), task_(std::move(task)) {}

  ~TrackedWork() override {
    if (!waited_) LeaveToBackground();
  }

  void Wait() override {
    if (waited_) return;
    waited_ = true;
    try {
      task_->Finish();
    } catch (const std::exception&) {
      const std::string cause(StatusFromCurrentException().message());
      group_->Fail(call_, cause);
    }
  }

  bool IsCompleted() override {
    if (waited_ || task_->done()) return true;
    LeaveToBackground();
    return false;
  }

 private:
  void LeaveToBackground() {
    if (!left_) task_->LeaveToBackground();
    left_ = true;
  }

  std::shared_ptr<ProcessGroup> group_;
  std::string call_;
  std::shared_ptr<Task> task_;
  bool waited_ = false;
  bool left_ = false;
};

namespace {

// A collective of c10d's, or none, and what is to do after it.
class C10dTask : public Task {
 public:
  C10dTask(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish)
      : work_(std::move(work)), finish_(std::move(finish)) {}

  bool done() override { return !work_ || work_->isCompleted() || Task::done(); }

 private:
  void Body() override {
    if (work_) work_->wait();
    if (finish_) finish_();
    finish_ = nullptr;
  }

  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
};

}  // namespace

ProcessGroup::ProcessGroup() = default;
ProcessGroup::~ProcessGroup() = default;

std::shared_ptr<ProcessGroup> ProcessGroup::Create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                   int size, std::string_view backend,
                                                   std::string name, const GroupOptions& options,
                                                   std::vector<std::string> hosts) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw std::invalid_argument(absl::StrCat("rank ", rank, " is out of range for a group of ",
                                             size, "; expected 0..", size - 1));
  }
  const auto kind = FindBackend(backend);
  if (!kind.ok()) throw StatusError(kind.status());
  std::shared_ptr<ProcessGroup> group(new ProcessGroup());
  group->rank_ = rank;
  group->size_ = size;
  group->name_ = std::move(name);
  group->backend_name_ = kind->name;
  group->device_type_ = kind->device_type;
  group->options_ = options;
  group->hosts_ = std::move(hosts);
  if (group->hosts_.empty()) group->hosts_.assign(size, "");
  for (int r = 0; r < size; ++r) group->global_ranks_.push_back(r);
  group->engine_ = std::make_unique<Engine>();
  group->engine_->store = store;
  if (size > 1) {
    try {
      group->Connect(*kind);
    } catch (const std::exception&) {
      group->Fail("forming the group", std::string(StatusFromCurrentException().message()));
    }
  }
  return group;
}

void ProcessGroup::Connect(const BackendKind& kind) {
  engine_->backend =
      kind.create({c10::make_intrusive<c10d::PrefixStore>("group/" + name_, engine_->store), rank_,
                   size_, options_.timeout, options_.local_address, options_.device_index});
  if (kind.device_type != c10::DeviceType::CPU) return;
  engine_->exchange = std::make_unique<DirectExchange>(
      MakeC10dTransport(engine_->backend, engine_->backend_mutex), rank_, size_);
  // Gloo is content when this rank's own connections stand. A rank that used that to leave at once
  // would break the forming of the others.
  engine_->exchange->AllReduce(at::zeros({1}, at::kInt), ReduceOp::kSum)->Finish();
}

at::Device ProcessGroup::device() const {
  if (device_type_ == c10::DeviceType::CPU) return at::Device(c10::DeviceType::CPU);
  return at::Device(device_type_, static_cast<c10::DeviceIndex>(options_.device_index));
}

std::vector<int> ProcessGroup::RanksOnHostOf(int rank) const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (hosts_[r] == hosts_[rank]) ranks.push_back(r);
  }
  return ranks;
}

void ProcessGroup::CheckTensor(std::string_view call, std::string_view argument,
                               const at::Tensor& tensor) const {
  const auto complain = [&](const std::string& what) {
    throw std::invalid_argument(absl::StrCat(std::string(call), " on group '", name_,
                                             "': ", std::string(argument), " ", what));
  };
  if (!tensor.defined()) complain("is an undefined tensor");
  if (tensor.device().type() != device_type_) {
    complain(absl::StrCat("is on ", tensor.device().str(), ", but backend ", backend_name_,
                          " takes tensors on ", c10::DeviceTypeName(device_type_, true)));
  }
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    complain(absl::StrCat("(", DescribeForCall(tensor),
                          ") is not dense and contiguous; pass tensor.contiguous()"));
  }
}

void ProcessGroup::Fail(const std::string& call, const std::string& cause) {
  std::vector<int> others;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) others.push_back(r);
  }
  const std::vector<int> silent =
      FindSilentRanks(engine_->store, name_, rank_, others, kBlamePatience);
  std::string blame;
  if (silent == std::vector<int>{-1}) {
    blame = "; the store on rank 0 does not answer: that process died or hangs";
  } else if (!silent.empty()) {
    blame = absl::StrCat("; no sign of life from ", RankList(silent), " of this group");
  }
  failure_ = absl::StrCat(call, " on group '", name_, "' (rank ", rank_, " of ", size_,
                          ") failed: ", cause, blame);
  throw CollectiveError(failure_);
}

WorkPtr ProcessGroup::Run(const Call& call, const std::function<std::shared_ptr<Task>()>& start) {
  if (!failure_.empty()) {
    throw CollectiveError(absl::StrCat(call.text, " on group '", name_,
                                       "' cannot start: the group is unusable since ", failure_));
  }
  const int64_t sequence = sequence_++;
  ++traffic_.collectives;
  ++family_traffic_->collectives;
  if (size_ > 1) {
    traffic_.bytes_sent += call.bytes_sent;
    family_traffic_->bytes_sent += call.bytes_sent;
  }
  if (options_.check_collectives && size_ > 1) {
    try {
      CompareCalls(*engine_->store, name_, sequence, rank_, size_, call.text, options_.timeout);
    } catch (const CollectiveError& error) {
      failure_ = error.what();
      throw;
    }
  }
  const std::string text = absl::StrCat("collective #", sequence, ", ", call.text, ",");
  // Nobody may have waited for the one that failed.
  const std::string earlier = engine_->exchange ? engine_->exchange->failure() : "";
  if (!earlier.empty()) Fail(text, absl::StrCat("an earlier collective failed: ", earlier));
  std::shared_ptr<Task> task;
  try {
    task = start();
  } catch (const std::exception&) {
    Fail(text, std::string(StatusFromCurrentException().message()));
  }
  return std::make_shared<TrackedWork>(shared_from_this(), text, std::move(task));
}

WorkPtr ProcessGroup::RunC10d(const Call& call,
                              const std::function<c10::intrusive_ptr<c10d::Work>()>& start,
                              Finish finish) {
  return Run(call, [&]() -> std::shared_ptr<Task> {
    c10::intrusive_ptr<c10d::Work> work;
    if (size_ > 1) {
      std::lock_guard lock(engine_->backend_mutex);
      work = start();
    }
    return std::make_shared<C10dTask>(std::move(work), std::move(finish));
  });
}

bool ProcessGroup::FewRanks() const { return engine_->exchange && size_ <= 16; }

bool ProcessGroup::failed() const {
  return !failure_.empty() || (engine_->exchange && !engine_->exchange->failure().empty());
}

void ProcessGroup::Barrier() {
  // An all-reduce of one number, unlike Gloo's own barrier, serves every backend and names its
  // failures alike.
  at::Tensor token = at::zeros({1}, at::TensorOptions(at::kInt).device(device()));
  AllReduce(token)->Wait();
  if (device_type_ != c10::DeviceType::CPU) token.item<int>();
}

std::vector<std::string> ProcessGroup::AllGatherBytes(std::string_view bytes) {
  const at::TensorOptions on_device = at::TensorOptions().device(device());
  at::Tensor length = at::zeros({1}, at::kLong);
  *length.data_ptr<int64_t>() = static_cast<int64_t>(bytes.size());
  at::Tensor lengths = at::empty({size_}, on_device.dtype(at::kLong));
  AllGather(lengths, length.to(device()))->Wait();
  lengths = lengths.cpu();
  const int64_t* length_of = lengths.data_ptr<int64_t>();
  const int64_t longest = *std::max_element(length_of, length_of + size_);
  std::vector<std::string> all(size_);
  if (longest == 0) return all;
  at::Tensor mine = at::zeros({longest}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), mine.data_ptr<uint8_t>());
  at::Tensor padded = at::empty({size_ * longest}, on_device.dtype(at::kByte));
  AllGather(padded, mine.to(device()))->Wait();
  padded = padded.cpu();
  const uint8_t* data = padded.data_ptr<uint8_t>();
  for (int r = 0; r < size_; ++r) {
    all[r].assign(data + r * longest, data + r * longest + length_of[r]);
  }
  return all;
}

std::shared_ptr<ProcessGroup> ProcessGroup::NewGroup(std::span<const int> ranks) {
  int previous = -1;
  for (int r : ranks) {
    if (r <= previous || r >= size_) {
      throw std::invalid_argument(
          absl::StrCat("NewGroup of group '", name_, "': [", absl::StrJoin(ranks, ", "),
                       "] must be ascending ranks without repeats, each in 0..", size_ - 1));
    }
    previous = r;
  }
  if (ranks.empty()) throw std::invalid_argument("NewGroup: the list of ranks is empty");
  const std::string name = absl::StrCat(name_, "/", subgroups_++, ":", absl::StrJoin(ranks, ","));
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end()) return nullptr;
  std::vector<std::string> hosts;
  std::vector<int> global_ranks;
  for (int r : ranks) {
    hosts.push_back(hosts_[r]);
    global_ranks.push_back(global_ranks_[r]);
  }
  auto group = Create(engine_->store, static_cast<int>(self - ranks.begin()),
                      static_cast<int>(ranks.size()), backend_name_, name, options_, hosts);
  group->global_ranks_ = std::move(global_ranks);
  group->family_traffic_ = family_traffic_;
  return group;
}

std::shared_ptr<ProcessGroup> ProcessGroup::Split(int color) {
  at::Tensor mine = at::zeros({1}, at::kLong);
  *mine.data_ptr<int64_t>() = color;
  at::Tensor colors = at::empty({size_}, at::TensorOptions(at::kLong).device(device()));
  AllGather(colors, mine.to(device()))->Wait();
  colors = colors.cpu();
  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    if (colors.data_ptr<int64_t>()[r] == color) members.push_back(r);
  }
  return NewGroup(members);
}

at::Tensor ProcessGroup::Allocate(int64_t numel, at::ScalarType dtype) {
  return at::zeros({numel}, at::TensorOptions(dtype).device(device()));
}

const c10::intrusive_ptr<c10d::Backend>& ProcessGroup::c10d_backend() const {
  return engine_->backend;
}

const c10::intrusive_ptr<c10d::Store>& ProcessGroup::c10d_store() const { return engine_->store; }

}  // namespace medfusion
