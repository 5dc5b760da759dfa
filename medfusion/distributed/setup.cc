#include "medfusion/distributed/setup.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/backend.h"
#include "medfusion/distributed/rendezvous.h"

namespace medfusion {
namespace {

constexpr auto kPartPatience = std::chrono::seconds(10);

struct Connected {
  std::shared_ptr<ProcessGroup> group;
  Rendezvous rendezvous;
  DistributedContext context;
};

struct Default {
  std::mutex mutex;
  std::shared_ptr<Connected> connected;
};

Default& GetDefault() {
  static auto* instance = new Default();
  return *instance;
}

thread_local std::shared_ptr<ProcessGroup> thread_group;

std::shared_ptr<Connected> GetConnected() {
  Default& state = GetDefault();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.connected;
}

int LocalRankIn(const ProcessGroup& group) {
  const std::vector<int> local = group.RanksOnHostOf(group.rank());
  return static_cast<int>(std::find(local.begin(), local.end(), group.rank()) - local.begin());
}

absl::StatusOr<std::shared_ptr<Connected>> Connect(const LaunchEnvironment& environment,
                                                   const DistributedOptions& options) {
  if (options.group.timeout <= std::chrono::milliseconds::zero()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout=", options.group.timeout.count(), " ms (options) must be positive"));
  }
  auto connected = std::make_shared<Connected>();
  MEDFUSION_ASSIGN_OR_RETURN(connected->rendezvous, Meet(environment, options.group.timeout));
  const auto& hosts = connected->rendezvous.hosts;
  const int on_this_host =
      static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[environment.rank]));
  MEDFUSION_ASSIGN_OR_RETURN(
      const std::string backend,
      ChooseBackend(options.backend, environment.local_world_size.value_or(on_this_host)));
  GroupOptions group = options.group;
  if (group.local_address.empty()) group.local_address = connected->rendezvous.local_address;
  const int local_rank = environment.local_rank.value_or(static_cast<int>(
      std::count(hosts.begin(), hosts.begin() + environment.rank, hosts[environment.rank])));
  group.device_index = local_rank;
  const absl::Status status = CatchAsStatus([&] {
    connected->group = ProcessGroup::Create(connected->rendezvous.store, environment.rank,
                                            environment.world_size, backend, "world", group, hosts);
  });
  if (!status.ok()) return Annotate(status, "connecting the ranks");
  connected->context = {environment.rank, local_rank, environment.world_size};
  return connected;
}

}  // namespace

absl::StatusOr<DistributedContext> SetupDistributed(const DistributedOptions& options) {
  if (GetConnected() != nullptr) {
    return absl::FailedPreconditionError(
        "SetupDistributed was called before; call CleanupDistributed first");
  }
  MEDFUSION_ASSIGN_OR_RETURN(const LaunchEnvironment environment,
                             ReadLaunchEnvironment(options.flags));
  MEDFUSION_ASSIGN_OR_RETURN(auto connected, Connect(environment, options));
  Default& state = GetDefault();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.connected = connected;
  return connected->context;
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ConnectProcessGroup(
    const LaunchEnvironment& environment, const DistributedOptions& options) {
  MEDFUSION_ASSIGN_OR_RETURN(auto connected, Connect(environment, options));
  return connected->group;
}

absl::Status CleanupDistributed() {
  std::shared_ptr<Connected> connected;
  {
    Default& state = GetDefault();
    const std::lock_guard<std::mutex> lock(state.mutex);
    connected = std::exchange(state.connected, nullptr);
  }
  if (connected == nullptr || connected->context.world_size == 1) return absl::OkStatus();
  if (connected->group->failed()) return absl::OkStatus();  // the others will not come
  return Part(connected->rendezvous, connected->context.rank, connected->context.world_size,
              kPartPatience);
}

int GetRank() {
  const auto group = DefaultGroup();
  return group == nullptr ? 0 : group->rank();
}

int GetLocalRank() {
  if (thread_group != nullptr) return LocalRankIn(*thread_group);
  const auto connected = GetConnected();
  return connected == nullptr ? 0 : connected->context.local_rank;
}

int GetWorldSize() {
  const auto group = DefaultGroup();
  return group == nullptr ? 1 : group->size();
}

bool IsMainProcess() { return GetRank() == 0; }

absl::Status Barrier() {
  const auto group = DefaultGroup();
  if (group == nullptr) return absl::OkStatus();
  return CatchAsStatus([&] { group->Barrier(); });
}

std::shared_ptr<ProcessGroup> DefaultGroup() {
  if (thread_group != nullptr) return thread_group;
  const auto connected = GetConnected();
  return connected == nullptr ? nullptr : connected->group;
}

ScopedDefaultGroup::ScopedDefaultGroup(std::shared_ptr<ProcessGroup> group)
    : previous_(std::exchange(thread_group, std::move(group))) {}

ScopedDefaultGroup::~ScopedDefaultGroup() { thread_group = std::move(previous_); }

}  // namespace medfusion
