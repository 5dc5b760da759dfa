#include "medfusion/distributed/roll_call.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "medfusion/distributed/rank_list.h"
#include "medfusion/distributed/work.h"

namespace medfusion {
namespace {

using Clock = std::chrono::steady_clock;

// Polling is gentle on the store and quick when the answer is there already.
class Backoff {
 public:
  void Sleep() {
    std::this_thread::sleep_for(delay_);
    delay_ = std::min(delay_ * 2, std::chrono::microseconds(20000));
  }

 private:
  std::chrono::microseconds delay_{200};
};

std::string CallKey(const std::string& group, int64_t sequence, int rank) {
  return absl::StrCat("calls/", group, "/", sequence, "/", rank);
}

}  // namespace

bool RunWithLimit(std::chrono::milliseconds limit, std::function<void()> function) {
  std::packaged_task<void()> task(std::move(function));
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    return false;
  }
  thread.join();  // nothing of it is left when the caller ends the process
  done.get();
  return true;
}

std::vector<int> FindSilentRanks(c10::intrusive_ptr<c10d::Store> store, const std::string& occasion,
                                 int self, const std::vector<int>& ranks,
                                 std::chrono::milliseconds patience) {
  auto silent = std::make_shared<std::vector<int>>();
  const auto key = [occasion](int rank) { return absl::StrCat("failed/", occasion, "/", rank); };
  const auto ask = [=]() {
    store->set(key(self), "1");
    const auto deadline = Clock::now() + patience;
    Backoff backoff;
    for (std::vector<int> missing = ranks;;) {
      std::erase_if(missing, [&](int rank) { return store->check({key(rank)}); });
      if (missing.empty() || Clock::now() >= deadline) {
        *silent = missing;
        return;
      }
      backoff.Sleep();
    }
  };
  try {
    if (!RunWithLimit(patience + std::chrono::seconds(1), ask)) return {-1};
  } catch (const std::exception&) {
    return {-1};
  }
  return *silent;
}

void CompareCalls(c10d::Store& store, const std::string& group, int64_t sequence, int rank,
                  int size, const std::string& call, std::chrono::milliseconds timeout) {
  store.set(CallKey(group, sequence, rank), call);
  const auto deadline = Clock::now() + timeout;
  Backoff backoff;
  std::vector<int> missing;
  for (int other = 0; other < size; ++other) missing.push_back(other);
  while (true) {
    std::vector<int> still;
    for (int other : missing) {
      if (!store.check({CallKey(group, sequence, other)})) {
        still.push_back(other);
        continue;
      }
      const std::string theirs = store.get_to_str(CallKey(group, sequence, other));
      if (theirs != call) {
        throw CollectiveError(
            absl::StrCat("ranks disagree about collective #", sequence, " of group '", group,
                         "': rank ", rank, " calls ", call, ", rank ", other, " calls ", theirs,
                         "; every rank must make the same calls in the same order"));
      }
    }
    missing = std::move(still);
    if (missing.empty()) break;
    if (Clock::now() >= deadline) {
      throw CollectiveError(absl::StrCat("rank ", rank, " waited ", timeout.count(),
                                         " ms in collective #", sequence, " of group '", group,
                                         "' (", call, ") for ", RankList(missing),
                                         ", which did not call it"));
    }
    backoff.Sleep();
  }
  // Everybody is past the previous call, so nobody reads its keys any more.
  if (sequence > 0) store.deleteKey(CallKey(group, sequence - 1, rank));
}

}  // namespace medfusion
