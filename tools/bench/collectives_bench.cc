// Time of collectives over Gloo, by ProcessGroup or by LibTorch's own c10d: JSON lines from rank 0.
//
//   bazel build --config=opt //tools/bench:collectives
//   bazel-bin/tools/bench/collectives --nproc_per_node=2
//
// "bytes" is the whole tensor's: all-reduce's, the gathered output's, reduce-scatter's input's. A
// time is that of the slowest rank over a batch of calls, one after the other, divided by their
// number.
#include <gflags/gflags.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "medfusion/distributed/distributed.h"
#include "medfusion/launch/spawn.h"

DEFINE_int32(nproc_per_node, 0, "ranks to start on this machine; 0 when a launcher started this");
DEFINE_string(by, "medfusion", "medfusion or c10d");
DEFINE_int32(repeats, 11, "batches of calls");
DEFINE_string(sizes, "4096,65536,1048576,67108864", "bytes of the whole tensor, comma separated");
DEFINE_int32(products, 10, "products of 512 x 512 matrices that are computed meanwhile");
DEFINE_string(only, "", "operations whose names contain this: AllReduce, UnderCompute, ...");

namespace {

using medfusion::ProcessGroup;
using Operation = std::pair<std::string, std::function<void()>>;

std::vector<Operation> MedfusionOperations(ProcessGroup& group, const at::Tensor& whole,
                                           const at::Tensor& part) {
  const at::Tensor own = whole.narrow(0, group.rank() * part.numel(), part.numel());
  const at::Tensor square = at::ones({512, 512});
  const auto compute = [square] {
    for (int i = 0; i < FLAGS_products; ++i) at::mm(square, square);
  };
  return {{"AllReduce", [&group, whole] { group.AllReduce(whole)->Wait(); }},
          {"Compute", compute},
          {"AllReduceUnderCompute",
           [&group, whole, compute] {
             const medfusion::WorkPtr work = group.AllReduce(whole);
             compute();
             work->Wait();
           }},
          {"AllGatherUnderCompute",
           [&group, whole, own, compute] {
             const medfusion::WorkPtr work = group.AllGather(whole, own);
             compute();
             work->Wait();
           }},
          {"ReduceScatterUnderCompute",
           [&group, whole, part, compute] {
             const medfusion::WorkPtr work = group.ReduceScatter(part, whole);
             compute();
             work->Wait();
           }},
          {"AllGather", [&group, whole, part] { group.AllGather(whole, part)->Wait(); }},
          {"AllGatherInPlace", [&group, whole, own] { group.AllGather(whole, own)->Wait(); }},
          {"ReduceScatter", [&group, whole, part] { group.ReduceScatter(part, whole)->Wait(); }}};
}

std::vector<Operation> C10dOperations(ProcessGroup& group, const at::Tensor& whole,
                                      const at::Tensor& part) {
  c10d::Backend* backend = group.c10d_backend().get();
  return {{"AllReduce",
           [=] {
             std::vector<at::Tensor> tensors{whole};
             backend->allreduce(tensors)->wait();
           }},
          {"AllGather",
           [=] {
             std::vector<at::Tensor> input{part};
             std::vector<std::vector<at::Tensor>> output{whole.chunk(backend->getSize())};
             backend->allgather(output, input)->wait();
           }},
          {"ReduceScatter", [=] {
             std::vector<at::Tensor> output{part};
             std::vector<std::vector<at::Tensor>> input{whole.chunk(backend->getSize())};
             backend->reduce_scatter(output, input)->wait();
           }}};
}

// Of all threads of this process.
double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void Measure(ProcessGroup& group, int64_t bytes, const Operation& operation) {
  using Clock = std::chrono::steady_clock;
  const int64_t calls = std::clamp<int64_t>((16 << 20) / bytes, 1, 100);
  operation.second();
  const double cpu_before = CpuMicroseconds();
  at::Tensor times = at::zeros({FLAGS_repeats}, at::kDouble);
  for (int i = 0; i < FLAGS_repeats; ++i) {
    group.Barrier();
    const auto begin = Clock::now();
    for (int64_t call = 0; call < calls; ++call) operation.second();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    times[i] = took.count() / static_cast<double>(calls);
  }
  const double cpu = (CpuMicroseconds() - cpu_before) / static_cast<double>(calls * FLAGS_repeats);
  group.AllReduce(times, medfusion::ReduceOp::kMax)->Wait();
  if (group.rank() != 0) return;
  const double median = times.median().item<double>();
  std::printf(
      "{\"bench\": \"collectives\", \"by\": \"%s\", \"ranks\": %d, \"op\": \"%s\", \"bytes\": %ld, "
      "\"median_us\": %.1f, \"min_us\": %.1f, \"cpu_us\": %.1f, \"algbw_GBps_median\": %.4f}\n",
      FLAGS_by.c_str(), group.size(), operation.first.c_str(), static_cast<long>(bytes), median,
      times.min().item<double>(), cpu, static_cast<double>(bytes) / median / 1e3);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_nproc_per_node > 0 && std::getenv("RANK") == nullptr) {
    return medfusion::SpawnRanks({.num_ranks = FLAGS_nproc_per_node, .arguments = arguments});
  }
  torch::set_num_threads(1);
  const auto context = medfusion::SetupDistributed();
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", std::string(context.status().message()).c_str());
    return 1;
  }
  ProcessGroup& group = *medfusion::DefaultGroup();
  size_t begin = 0;
  while (begin < FLAGS_sizes.size()) {
    const size_t end = std::min(FLAGS_sizes.find(',', begin), FLAGS_sizes.size());
    const int64_t bytes = std::stoll(FLAGS_sizes.substr(begin, end - begin));
    begin = end + 1;
    const int64_t part_numel = bytes / 4 / group.size();
    const at::Tensor part = at::zeros({part_numel});
    const at::Tensor whole = at::zeros({part_numel * group.size()});
    for (const Operation& operation : FLAGS_by == "c10d"
                                          ? C10dOperations(group, whole, part)
                                          : MedfusionOperations(group, whole, part)) {
      if (operation.first.find(FLAGS_only) != std::string::npos) Measure(group, bytes, operation);
    }
  }
  return medfusion::CleanupDistributed().ok() ? 0 : 1;
}
