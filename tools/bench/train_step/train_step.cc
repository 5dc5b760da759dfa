// Step time, losses and memory of training on the CPU: one JSON line from rank 0.
//
//   bazel run --config=opt //tools/bench:train_step -- --strategy=fsdp --model=mlp_big
//   --nproc_per_node=2 torchrun --no-python --nproc_per_node=2 bazel-bin/tools/bench/train_step
//   --strategy=ddp ...
//
// tools/bench/peer/peer_train.py does the same work with PyTorch and prints the same fields;
// tools/bench:compare runs both.
#include <gflags/gflags.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "medfusion/ddp/ddp.h"
#include "medfusion/distributed/distributed.h"
#include "medfusion/fsdp/fsdp.h"
#include "medfusion/launch/spawn.h"
#include "medfusion/optim/optim.h"
#include "tools/bench/train_step/memory_use.h"
#include "tools/bench/train_step/models.h"

DEFINE_string(strategy, "single", "single, ddp or fsdp");
DEFINE_string(sharding_strategy, "FULL_SHARD", "of fsdp: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD");
DEFINE_string(units, "layers",
              "of fsdp: layers (one unit per layer or block and one for the rest, as the peer) or "
              "auto (by size)");
DEFINE_string(model, "mlp_small",
              "mlp_small, mlp_big, transformer, or none: memory of a rank without a model");
DEFINE_int32(nproc_per_node, 0, "start so many ranks; 0: this process is a rank, or alone");
DEFINE_int32(batch, 32, "global batch, split evenly over the ranks");
DEFINE_int32(steps, 20, "training steps");
DEFINE_int32(warmup, 3, "steps that are not timed, of these");
DEFINE_string(optim, "sgd", "sgd (lr 0.01, momentum 0.9) or adamw (lr 1e-3, weight decay 0.01)");
DEFINE_bool(fused, false, "the optimizer's fused kernel");
DEFINE_int32(losses, 1 << 30, "print at most so many losses");
DEFINE_double(t0, 0, "when the launch began, in seconds since 1970; 0: not known");

namespace medfusion::bench {
namespace {

double Now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch).count();
}

// What the loop needs of a model under some strategy.
struct Trained {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<at::Tensor> parameters;
};

ShardingStrategy Sharding() {
  for (const auto strategy : {ShardingStrategy::FULL_SHARD, ShardingStrategy::SHARD_GRAD_OP,
                              ShardingStrategy::NO_SHARD}) {
    if (FLAGS_sharding_strategy == ShardingStrategyName(strategy)) return strategy;
  }
  throw std::invalid_argument("--sharding_strategy=" + FLAGS_sharding_strategy +
                              " is unknown; expected FULL_SHARD, SHARD_GRAD_OP or NO_SHARD");
}

Trained Wrap(const std::shared_ptr<Model>& net) {
  if (FLAGS_strategy == "single") {
    return {[net](const at::Tensor& x) { return net->forward(x); }, net->parameters()};
  }
  if (FLAGS_strategy == "ddp") {
    auto model = std::make_shared<DDPWrapper<Model>>(net);
    return {[model](const at::Tensor& x) { return (*model)->forward(x); }, (*model)->parameters()};
  }
  if (FLAGS_strategy == "fsdp") {
    FSDPOptions options;
    options.sharding_strategy = Sharding();
    if (FLAGS_units == "layers") {
      options.unit_predicate = [](const UnitCandidate& module) {
        return module.path.rfind("layers.", 0) == 0 &&
               module.path.find('.', 7) == std::string::npos;
      };
    }
    auto model = std::make_shared<FSDPWrapper<Model>>(net, std::move(options));
    return {[model](const at::Tensor& x) { return (*model)->forward(x); }, (*model)->parameters()};
  }
  throw std::invalid_argument("--strategy=" + FLAGS_strategy +
                              " is unknown; expected single, ddp or fsdp");
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::vector<at::Tensor>& parameters) {
  const auto sgd = torch::optim::SGDOptions(0.01).momentum(0.9);
  const auto adamw = torch::optim::AdamWOptions(1e-3).weight_decay(0.01);
  if (FLAGS_optim == "sgd") {
    if (FLAGS_fused) return std::make_unique<FusedSGD>(parameters, sgd);
    return std::make_unique<torch::optim::SGD>(parameters, sgd);
  }
  if (FLAGS_optim == "adamw") {
    if (FLAGS_fused) return std::make_unique<FusedAdamW>(parameters, adamw);
    return std::make_unique<torch::optim::AdamW>(parameters, adamw);
  }
  throw std::invalid_argument("--optim=" + FLAGS_optim + " is unknown; expected sgd or adamw");
}

int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

int64_t StateBytes(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (auto& [parameter, state] : optimizer.state()) {
    if (FLAGS_optim == "sgd") {
      tensors.push_back(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer());
    } else {
      const auto& moments = static_cast<torch::optim::AdamWParamState&>(*state);
      tensors.push_back(moments.exp_avg());
      tensors.push_back(moments.exp_avg_sq());
    }
  }
  return BytesOf(tensors);
}

struct Measured {
  std::vector<double> seconds;  // by step
  std::vector<double> losses;   // of this rank, by step
  double first_step_ended = 0;
  int64_t bytes_sent_per_step = 0;
};

Measured TrainSteps(Model& net, const Trained& model, torch::optim::Optimizer& optimizer,
                    ProcessGroup* group) {
  const int rank = group == nullptr ? 0 : group->rank();
  const int rows = FLAGS_batch / (group == nullptr ? 1 : group->size());
  std::vector<Batch> batches;
  for (int b = 0; b < 4; ++b) {
    batches.push_back(MakeBatch(FLAGS_model, b, rank * rows, (rank + 1) * rows));
  }
  Measured measured;
  int64_t sent_before = 0;
  for (int step = 0; step < FLAGS_steps; ++step) {
    if (group != nullptr && step == FLAGS_warmup) {
      sent_before = group->family_traffic().bytes_sent;
    }
    const Batch& batch = batches[step % 4];
    const auto begin = std::chrono::steady_clock::now();
    at::Tensor loss = net.Loss(model.forward(batch.x), batch.y);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    measured.seconds.push_back(took.count());
    measured.losses.push_back(loss.item<double>());
    if (step == 0) measured.first_step_ended = Now();
  }
  if (group != nullptr && FLAGS_steps > FLAGS_warmup) {
    measured.bytes_sent_per_step =
        (group->family_traffic().bytes_sent - sent_before) / (FLAGS_steps - FLAGS_warmup);
  }
  return measured;
}

// Every rank's memory; losses become the mean over the ranks and times those of the slowest.
nlohmann::json Join(Measured& measured, const nlohmann::json& memory, ProcessGroup* group) {
  if (group == nullptr) return nlohmann::json::array({memory});
  const auto reduce = [group](std::vector<double>& values, ReduceOp op) {
    at::Tensor tensor = at::tensor(values, at::kDouble);
    group->AllReduce(tensor, op)->Wait();
    const double* data = tensor.const_data_ptr<double>();
    values.assign(data, data + tensor.numel());
  };
  reduce(measured.losses, ReduceOp::kAverage);
  reduce(measured.seconds, ReduceOp::kMax);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : group->AllGatherBytes(memory.dump())) {
    all.push_back(nlohmann::json::parse(text));
  }
  return all;
}

std::string NineDigits(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void Run(ProcessGroup* group, double began) {
  nlohmann::json result = {{"bench", "train"},     {"strategy", FLAGS_strategy},
                           {"model", FLAGS_model}, {"world", group == nullptr ? 1 : group->size()},
                           {"batch", FLAGS_batch}, {"optim", FLAGS_optim},
                           {"fused", FLAGS_fused}, {"steps", FLAGS_steps}};
  nlohmann::json memory;
  const double anonymous_before = MemoryUse()["rssanon_mb"];
  Measured measured;
  if (FLAGS_model == "none") {
    memory = MemoryUse();
  } else {
    const std::shared_ptr<Model> net = MakeModel(FLAGS_model);
    const Trained model = Wrap(net);
    const auto optimizer = MakeOptimizer(model.parameters);
    measured = TrainSteps(*net, model, *optimizer, group);
    memory = MemoryUse();
    memory["param_bytes"] = BytesOf(model.parameters);
    memory["opt_bytes"] = StateBytes(*optimizer);
  }
  memory["rssanon_before_model_mb"] = anonymous_before;
  result["mem"] = Join(measured, memory, group);
  if (group != nullptr && group->rank() != 0) return;
  if (!measured.seconds.empty()) {
    const std::vector<double> timed(measured.seconds.begin() + FLAGS_warmup,
                                    measured.seconds.end());
    const double median = Median(timed);
    result["step_ms"] = {{"median", median * 1e3},
                         {"min", *std::min_element(timed.begin(), timed.end()) * 1e3},
                         {"max", *std::max_element(timed.begin(), timed.end()) * 1e3}};
    result["samples_per_s"] = FLAGS_batch / median;
    result["losses"] = nlohmann::json::array();
    for (int i = 0; i < std::min(FLAGS_steps, FLAGS_losses); ++i) {
      result["losses"].push_back(NineDigits(measured.losses[i]));
    }
    result["last_loss"] = NineDigits(measured.losses.back());
    result["bytes_sent"] = measured.bytes_sent_per_step;
    if (FLAGS_t0 > 0) {
      result["launch_to_script_s"] = began - FLAGS_t0;
      result["launch_to_first_step_s"] = measured.first_step_ended - FLAGS_t0;
    }
  }
  std::printf("%s\n", result.dump().c_str());
}

int Main() {
  const double began = Now();
  at::set_num_threads(1);
  if (FLAGS_model != "none" && (FLAGS_steps <= FLAGS_warmup || FLAGS_warmup < 0)) {
    std::fprintf(stderr, "--steps=%d with --warmup=%d leaves no step to measure\n", FLAGS_steps,
                 FLAGS_warmup);
    return 2;
  }
  if (FLAGS_strategy == "single") {
    Run(nullptr, began);
    return 0;
  }
  const auto context = SetupDistributed();
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", context.status().ToString().c_str());
    return 1;
  }
  if (FLAGS_batch % context->world_size != 0) {
    std::fprintf(stderr, "--batch=%d does not divide by %d ranks\n", FLAGS_batch,
                 context->world_size);
    return 2;
  }
  Run(DefaultGroup().get(), began);
  return CleanupDistributed().ok() ? 0 : 1;
}

}  // namespace
}  // namespace medfusion::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_nproc_per_node > 0 && std::getenv("RANK") == nullptr) {
    return medfusion::SpawnRanks({.num_ranks = FLAGS_nproc_per_node, .arguments = arguments});
  }
  try {
    return medfusion::bench::Main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_step: %s\n", error.what());
    return 1;
  }
}
