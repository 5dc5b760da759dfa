#include "medfusion/distributed/rendezvous.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/broken_pipe.h"
#include "medfusion/distributed/network_address.h"
#include "medfusion/distributed/rank_list.h"
#include "medfusion/distributed/roll_call.h"

namespace medfusion {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// What the ranks write is read within this time, before a failing rank 0 takes the store with it.
constexpr Milliseconds kLinger{500};
constexpr Milliseconds kPollLimit{20};

std::string MeetingPoint(const LaunchEnvironment& env) {
  return absl::StrCat("MASTER_ADDR=", env.master_addr, " MASTER_PORT=", env.master_port, " (",
                      env.source, ")");
}

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const LaunchEnvironment& env,
                                                          const ResolvedAddress& address,
                                                          Milliseconds timeout) {
  IgnoreBrokenPipes();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !env.agent_store;
  options.numWorkers = env.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (options.isServer) {
    // Our own socket: the error of a taken port is exact, and a job of one host listens on loopback
    // alone.
    const auto socket = Listen(env.master_port, address);
    if (!socket.ok()) {
      return absl::Status(
          socket.status().code(),
          absl::StrCat("MASTER_PORT=", env.master_port, " (", env.source, ") ",
                       socket.status().message(), "; end that process or choose another port"));
    }
    options.masterListenFd = *socket;
  }
  auto store = std::make_shared<c10::intrusive_ptr<c10d::Store>>();
  const std::string host = address.numeric;
  bool answered = false;
  const absl::Status status = CatchAsStatus([&] {
    answered = RunWithLimit(timeout + std::chrono::seconds(5), [store, host, options] {
      *store = c10::make_intrusive<c10d::TCPStore>(host, options);
    });
  });
  if (status.ok() && answered) return *store;
  return absl::UnavailableError(absl::StrCat(
      "rank ", env.rank, " could not reach rank 0's store at ", MeetingPoint(env), " within ",
      timeout.count(), " ms; check that rank 0 runs and that the port is open",
      status.ok() ? "" : absl::StrCat(": ", status.message())));
}

void Abort(c10d::Store& store, const absl::Status& status) {
  store.set("abort", absl::StrCat(static_cast<int>(status.code()), " ", status.message()));
}

std::optional<absl::Status> ReadAbort(c10d::Store& store) {
  if (!store.check({"abort"})) return std::nullopt;
  const std::string text = store.get_to_str("abort");
  const size_t space = text.find(' ');
  int code = 0;
  if (!absl::SimpleAtoi(text.substr(0, space), &code)) code = 13;
  return absl::Status(static_cast<absl::StatusCode>(code), text.substr(space + 1));
}

std::string PresentKey(int rank) { return absl::StrCat("present/", rank); }

std::vector<int> Missing(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  for (int r = 0; r < world_size; ++r) {
    if (!store.check({PresentKey(r)})) missing.push_back(r);
  }
  return missing;
}

// Each rank's claim to its number and to the size of the world, checked by all against all.
absl::Status Claim(c10d::Store& store, const LaunchEnvironment& env) {
  const std::string size = std::to_string(env.world_size);
  const std::string agreed = store.compareSet("world_size", std::string(), size);
  if (agreed != size) {
    return absl::InvalidArgumentError(absl::StrCat("WORLD_SIZE=", size, " on rank ", env.rank, " (",
                                                   env.source, "), but ", agreed,
                                                   " on another rank; it must be the same"));
  }
  if (store.add(absl::StrCat("claim/", env.rank), 1) > 1) {
    return absl::AlreadyExistsError(absl::StrCat(
        "two processes claim RANK=", env.rank, " (", env.source, ") at ", MeetingPoint(env),
        "; give every process its own rank, and every job its own port"));
  }
  store.set(PresentKey(env.rank), HostIdentity());
  if (store.add("arrived", 1) == env.world_size) store.set("complete", "1");
  return absl::OkStatus();
}

absl::Status AwaitAll(c10d::Store& store, const LaunchEnvironment& env, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (Milliseconds delay(1);; delay = std::min(delay * 2, kPollLimit)) {
    if (const auto abort = ReadAbort(store)) return *abort;
    if (store.check({"complete"})) return absl::OkStatus();
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(delay);
  }
  const std::vector<int> missing = Missing(store, env.world_size);
  return absl::DeadlineExceededError(
      absl::StrCat("waited ", timeout.count(), " ms at ", MeetingPoint(env), " for ",
                   env.world_size, " ranks; ", RankList(missing),
                   " never came: check that each was started, with the same MASTER_ADDR, "
                   "MASTER_PORT and WORLD_SIZE"));
}

absl::Status RollCall(c10d::Store& store, const LaunchEnvironment& env, Milliseconds timeout,
                      std::vector<std::string>& hosts) {
  absl::Status status = Claim(store, env);
  if (status.ok()) status = AwaitAll(store, env, timeout);
  if (status.ok()) {
    for (int r = 0; r < env.world_size; ++r) hosts.push_back(store.get_to_str(PresentKey(r)));
  } else {
    Abort(store, status);
  }
  return status;
}

}  // namespace

absl::StatusOr<Rendezvous> Meet(const LaunchEnvironment& env, Milliseconds timeout) {
  // torchrun's store outlives the groups of a process, with all their keys.
  static std::atomic<int> meetings{0};
  const int meeting = env.agent_store ? meetings++ : 0;
  Rendezvous result;
  if (env.world_size == 1) {
    result.store = c10::make_intrusive<c10d::HashStore>();
    result.hosts = {HostIdentity()};
    return result;
  }
  const auto address = ResolveHost(env.master_addr);
  if (!address.ok()) {
    return absl::UnavailableError(absl::StrCat("MASTER_ADDR=", env.master_addr, " (", env.source,
                                               ") ", address.status().message(),
                                               "; give the host of rank 0, by name or address"));
  }
  MEDFUSION_ASSIGN_OR_RETURN(
      result.local_address,
      LocalAddressTowards(*address, ReadProcessEnvironment("GLOO_SOCKET_IFNAME").value_or("")));
  const auto deadline = Clock::now() + timeout;
  MEDFUSION_ASSIGN_OR_RETURN(auto store, OpenStore(env, *address, timeout));
  result.serves_store = env.rank == 0 && !env.agent_store;
  result.store = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("medfusion/", env.run_id, "/", meeting), store);
  result.store->setTimeout(timeout);
  const auto left =
      std::max(Milliseconds(1), std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
  auto hosts = std::make_shared<std::vector<std::string>>();
  auto status = std::make_shared<absl::Status>();
  bool ended = false;
  const absl::Status failure = CatchAsStatus([&] {
    ended = RunWithLimit(left + std::chrono::seconds(5),
                         [status, hosts, env, left, shared = result.store] {
                           *status = RollCall(*shared, env, left, *hosts);
                         });
  });
  if (!failure.ok() || !ended) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", env.rank, " lost rank 0's store at ", MeetingPoint(env), " during the roll call",
        ended ? "" : absl::StrCat("; it did not answer within ", timeout.count(), " ms"),
        failure.ok() ? "" : absl::StrCat(": ", failure.message())));
  }
  if (!status->ok()) {
    if (result.serves_store) std::this_thread::sleep_for(kLinger);
    return *status;
  }
  result.hosts = std::move(*hosts);
  return result;
}

absl::Status Part(const Rendezvous& rendezvous, int rank, int world_size, Milliseconds patience) {
  auto missing = std::make_shared<std::vector<int>>();
  const auto leave = [=, store = rendezvous.store] {
    store->set(absl::StrCat("bye/", rank), "1");
    if (!rendezvous.serves_store) return;
    const auto deadline = Clock::now() + patience;
    for (int r = 0; r < world_size; ++r) {
      while (!store->check({absl::StrCat("bye/", r)})) {
        if (Clock::now() >= deadline) {
          missing->push_back(r);
          break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
  };
  bool ended = false;
  const absl::Status status =
      CatchAsStatus([&] { ended = RunWithLimit(patience + std::chrono::seconds(1), leave); });
  if (!status.ok()) return Annotate(status, "leaving the group");
  if (!ended) return absl::DeadlineExceededError("leaving the group: the store does not answer");
  if (!missing->empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        RankList(*missing), " did not leave the group within ", patience.count(), " ms"));
  }
  return absl::OkStatus();
}

}  // namespace medfusion
