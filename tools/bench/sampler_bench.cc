// Time and memory of one epoch's indices from DistributedSampler: one JSON line.
//
//   bazel run --config=opt //tools/bench:sampler_bench -- --n=1000000 --world=8
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "medfusion/sampler/distributed_sampler.h"

DEFINE_int64(n, 1000000, "samples of the dataset");
DEFINE_int64(world, 8, "replicas");
DEFINE_int64(rank, 0, "the replica measured");
DEFINE_int32(repeats, 5, "epochs");

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A field of /proc/self/status, in MB.
double MemoryMb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1)) / 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  medfusion::DistributedSampler sampler(FLAGS_n, FLAGS_world, FLAGS_rank);
  const double before = MemoryMb("VmRSS");
  double peak = 0, held = 0, first_s = 0;
  std::vector<double> times;
  std::vector<size_t> head;
  for (int epoch = 0; epoch < FLAGS_repeats; ++epoch) {
    sampler.SetEpoch(epoch);
    const auto begin = Clock::now();
    std::vector<size_t> indices = *sampler.Next(1);  // makes the whole order
    const double to_first = Seconds(begin);
    indices.reserve(sampler.size());
    while (const auto batch = sampler.Next(256)) {
      indices.insert(indices.end(), batch->begin(), batch->end());
    }
    times.push_back(Seconds(begin));
    if (epoch == 0) {
      peak = MemoryMb("VmHWM") - before;
      held = MemoryMb("VmRSS") - before;
      first_s = to_first;
      head.assign(indices.begin(), indices.begin() + std::min<size_t>(4, indices.size()));
    }
  }
  std::sort(times.begin(), times.end());
  std::string numbers;
  for (size_t index : head) numbers += (numbers.empty() ? "" : ", ") + std::to_string(index);
  std::printf(
      "{\"bench\": \"sampler\", \"n\": %lld, \"world\": %lld, \"median_s\": %.4f, \"min_s\": %.4f, "
      "\"to_first_index_s\": %.4f, \"epoch0_head\": [%s], \"peak_extra_mb\": %.1f, "
      "\"held_extra_mb\": %.1f}\n",
      static_cast<long long>(FLAGS_n), static_cast<long long>(FLAGS_world), times[times.size() / 2],
      times[0], first_s, numbers.c_str(), peak, held);
}
