// Time of a training step of a small network (30-64-64-2, 32 samples in all) by DDPWrapper, by
// LibTorch's own c10d::Reducer, or by one rank alone: one JSON line from rank 0.
//
//   bazel build --config=opt //tools/bench:ddp_step
//   torchrun --no-python --nproc_per_node=2 bazel-bin/tools/bench/ddp_step --by=medfusion
#include <gflags/gflags.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <vector>

#include "medfusion/ddp/ddp.h"
#include "medfusion/distributed/distributed.h"

DEFINE_string(by, "medfusion", "medfusion, c10d or alone");
DEFINE_int32(steps, 300, "steps measured");
DEFINE_int32(warmup, 20, "steps before them");
DEFINE_int32(width, 64, "width of the hidden layers");
DEFINE_int32(batch, 32, "samples in all");

namespace {

std::shared_ptr<c10d::Reducer> MakeC10dReducer(medfusion::ProcessGroup& group,
                                               torch::nn::Sequential& net) {
  auto c10d_group =
      c10::make_intrusive<c10d::ProcessGroup>(group.c10d_store(), group.rank(), group.size());
  c10d_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                         group.c10d_backend());
  c10d_group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  const auto parameters = net->parameters();
  const std::vector<bool> dense(parameters.size(), false);
  constexpr size_t kFirst = 1 << 20, kRest = 25 << 20;
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kFirst, kRest}, dense);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  std::unordered_map<size_t, std::string> names;
  for (const auto& item : net->named_parameters()) names[names.size()] = item.key();
  auto reducer = std::make_shared<c10d::Reducer>(
      parameters, buckets, c10d_group, dense, kRest, false, false, names, kFirst, false, false,
      std::vector<int64_t>(limits.begin(), limits.end()));
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log("net", {}, -1, true, false, false);
  return reducer;
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  torch::set_num_threads(1);
  const auto context = medfusion::SetupDistributed().value();
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(30, FLAGS_width), torch::nn::ReLU(),
                            torch::nn::Linear(FLAGS_width, FLAGS_width), torch::nn::ReLU(),
                            torch::nn::Linear(FLAGS_width, 2));
  std::optional<medfusion::DDPWrapper<torch::nn::Sequential>> model;
  std::shared_ptr<c10d::Reducer> reducer;
  if (FLAGS_by == "medfusion") model.emplace(net);
  if (FLAGS_by == "c10d") reducer = MakeC10dReducer(*medfusion::DefaultGroup(), net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const at::Tensor x = torch::randn({FLAGS_batch / context.world_size, 30});
  const at::Tensor y = (x.sum(-1) > 0).to(torch::kLong);
  std::vector<double> milliseconds;
  for (int step = -FLAGS_warmup; step < FLAGS_steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    at::Tensor output;
    if (model) {
      output = (*model)->forward(x);
    } else if (reducer) {
      reducer->prepare_for_forward();
      reducer->rebuild_buckets();
      output = net->forward(x);
      reducer->prepare_for_backward({});
    } else {
      output = net->forward(x);
    }
    torch::cross_entropy_loss(output, y).backward();
    optimizer.step();
    optimizer.zero_grad();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (step >= 0) milliseconds.push_back(took.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  if (context.rank == 0) {
    std::printf(
        "{\"bench\": \"ddp_step\", \"by\": \"%s\", \"ranks\": %d, \"width\": %d, "
        "\"median_ms\": %.3f, \"min_ms\": %.3f}\n",
        FLAGS_by.c_str(), context.world_size, FLAGS_width, milliseconds[milliseconds.size() / 2],
        milliseconds.front());
  }
  model.reset();
  reducer.reset();
  return medfusion::CleanupDistributed().ok() ? 0 : 1;
}
