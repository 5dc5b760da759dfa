// Time of an optimizer's step, LibTorch's and the fused one in turn: a JSON line for each.
//
//   bazel run --config=opt //tools/bench:optimizer
#include <gflags/gflags.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "medfusion/optim/optim.h"

DEFINE_int32(steps, 30, "steps measured");
DEFINE_int32(threads, 1, "to compute with");

namespace {

using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;

struct Model {
  std::string name;
  int64_t parameters;
  int64_t numel;    // of each
  bool neighbours;  // in memory, as FSDP's slices are
};

std::vector<at::Tensor> MakeParameters(const Model& model) {
  const int64_t total = model.parameters * model.numel;
  const at::Tensor flat = torch::randn({total}), gradients = torch::randn({total});
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < model.parameters; ++i) {
    at::Tensor parameter = flat.narrow(0, i * model.numel, model.numel).detach();
    at::Tensor gradient = gradients.narrow(0, i * model.numel, model.numel);
    if (!model.neighbours) {
      parameter = parameter.clone();
      gradient = gradient.clone();
    }
    parameter.set_requires_grad(true).mutable_grad() = gradient;
    parameters.push_back(parameter);
  }
  return parameters;
}

double StepSeconds(Optimizer& optimizer) {
  const auto begin = std::chrono::steady_clock::now();
  optimizer.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The two take turns, so that both see the same machine.
void Compare(const Model& model, const std::string& name, std::unique_ptr<Optimizer> plain,
             std::unique_ptr<Optimizer> fused) {
  std::vector<double> plain_seconds, fused_seconds;
  for (int step = 0; step < FLAGS_steps + 3; ++step) {
    const double a = StepSeconds(*plain), b = StepSeconds(*fused);
    if (step < 3) continue;
    plain_seconds.push_back(a);
    fused_seconds.push_back(b);
  }
  const double a = Median(plain_seconds), b = Median(fused_seconds);
  std::printf(
      "{\"optimizer\": \"%s\", \"model\": \"%s\", \"threads\": %d, \"torch_ms\": %.3f, "
      "\"fused_ms\": %.3f, \"ratio\": %.3f}\n",
      name.c_str(), model.name.c_str(), FLAGS_threads, a * 1e3, b * 1e3, b / a);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  at::set_num_threads(FLAGS_threads);
  for (const Model& model :
       {Model{"8x2048x2048", 8, 2048 * 2048, false}, Model{"200x4096", 200, 4096, false},
        Model{"200x4096 neighbours", 200, 4096, true}, Model{"200x64", 200, 64, false},
        Model{"200x64 neighbours", 200, 64, true}}) {
    const auto plain = MakeParameters(model), fused = MakeParameters(model);
    const AdamWOptions adamw(1e-3);
    Compare(model, "AdamW", std::make_unique<torch::optim::AdamW>(plain, adamw),
            std::make_unique<medfusion::FusedAdamW>(fused, adamw));
    const SGDOptions sgd = SGDOptions(1e-3).momentum(0.9);
    Compare(model, "SGD", std::make_unique<torch::optim::SGD>(plain, sgd),
            std::make_unique<medfusion::FusedSGD>(fused, sgd));
  }
  return 0;
}
