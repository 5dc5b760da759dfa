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

namespace {

std::vector<std::string> Run(const std::string& backend, int world_size,
                             const std::function<void(ProcessGroup&)>& body,
                             const GroupOptions& base_options) {
  at::set_num_threads(1);
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(base_options.timeout);
  std::vector<std::string> errors(world_size);
  const auto run = [&](int rank) {
    at::set_num_threads(1);  // OpenMP's setting belongs to the thread
    try {
      GroupOptions options = base_options;
      options.device_index = rank;
      auto group = ProcessGroup::Create(store, rank, world_size, backend, "test", options);
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

void Report(const std::vector<std::string>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) ADD_FAILURE() << "rank " << rank << ": " << errors[rank];
  }
}

}  // namespace

std::vector<std::string> RunRanksThatMayFail(int world_size,
                                             const std::function<void(ProcessGroup&)>& body,
                                             const GroupOptions& options) {
  return Run("gloo", world_size, body, options);
}

void RunRanks(int world_size, const std::function<void(ProcessGroup&)>& body,
              const GroupOptions& options) {
  Report(Run("gloo", world_size, body, options));
}

void RunRanksOn(const std::string& backend, int world_size,
                const std::function<void(ProcessGroup&)>& body) {
  Report(Run(backend, world_size, body, TestGroupOptions()));
}

}  // namespace medfusion::testing
