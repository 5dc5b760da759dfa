#include "tests/testing/ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "medfusion/base/status.h"
#include "medfusion/distributed/setup.h"

namespace medfusion::testing {

GroupOptions TestGroupOptions() {
  GroupOptions options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

std::vector<std::string> RunRanksThatMayFail(int world_size,
                                             const std::function<void(ProcessGroup&)>& body,
                                             const GroupOptions& options) {
  at::set_num_threads(1);
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(options.timeout);
  std::vector<std::string> errors(world_size);
  const auto run = [&](int rank) {
    at::set_num_threads(1);  // OpenMP's setting belongs to the thread
    try {
      auto group = ProcessGroup::Create(store, rank, world_size, "gloo", "test", options);
      ScopedDefaultGroup scope(group);
      body(*group);
    } catch (const std::exception&) {
      errors[rank] = std::string(StatusFromCurrentException().message());
      if (errors[rank].empty()) errors[rank] = "an exception without text";
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void RunRanks(int world_size, const std::function<void(ProcessGroup&)>& body,
              const GroupOptions& options) {
  const std::vector<std::string> errors = RunRanksThatMayFail(world_size, body, options);
  for (int rank = 0; rank < world_size; ++rank) {
    if (!errors[rank].empty()) ADD_FAILURE() << "rank " << rank << ": " << errors[rank];
  }
}

}  // namespace medfusion::testing
