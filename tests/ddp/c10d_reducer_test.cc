// LibTorch's own reducer as the oracle: the same gradients from the same module.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <vector>

#include "medfusion/ddp/ddp_wrapper.h"
#include "tests/ddp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

class Mlp : public torch::nn::Module {
 public:
  Mlp() {
    net_ =
        register_module("net", torch::nn::Sequential(torch::nn::Linear(3, 16), torch::nn::Tanh(),
                                                     torch::nn::Linear(16, 16), torch::nn::Tanh(),
                                                     torch::nn::Linear(16, 2)));
  }
  at::Tensor forward(const at::Tensor& x) { return net_->forward(x); }

 private:
  torch::nn::Sequential net_{nullptr};
};

std::shared_ptr<c10d::Reducer> MakeOracle(ProcessGroup& group, const Mlp& module) {
  auto c10d_group =
      c10::make_intrusive<c10d::ProcessGroup>(group.c10d_store(), group.rank(), group.size());
  c10d_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                         group.c10d_backend());
  c10d_group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  const auto parameters = module.parameters();
  const std::vector<bool> dense(parameters.size(), false);
  constexpr size_t kFirst = 256, kRest = 1024;
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kFirst, kRest}, dense);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  std::unordered_map<size_t, std::string> names;
  for (const auto& item : module.named_parameters()) names[names.size()] = item.key();
  auto reducer = std::make_shared<c10d::Reducer>(
      parameters, buckets, c10d_group, dense, kRest, /*find_unused_parameters=*/false,
      /*gradient_as_bucket_view=*/false, names, kFirst, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, std::vector<int64_t>(limits.begin(), limits.end()));
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log("Mlp", {}, -1, true, false, false);
  return reducer;
}

TEST(C10dReducerTest, GivesTheSameGradientsForTenSteps) {
  RunRanks(3, [](ProcessGroup& group) {
    auto ours = DoubleModule<Mlp>();
    auto theirs = DoubleModule<Mlp>();
    FillParameters(*ours);
    FillParameters(*theirs);
    DDPOptions options;
    options.buckets = {256, 1024};
    DDPWrapper model(ours, options);
    const auto oracle = MakeOracle(group, *theirs);
    torch::optim::SGD optimizer(model->parameters(), 0.05);
    torch::optim::SGD their_optimizer(theirs->parameters(), 0.05);
    for (int step = 0; step < 10; ++step) {
      const at::Tensor x = InputOf(group.rank() + 3 * step);
      optimizer.zero_grad();
      model->forward(x).square().mean().backward();
      their_optimizer.zero_grad();
      oracle->prepare_for_forward();
      oracle->rebuild_buckets();
      const at::Tensor out = theirs->forward(x);
      oracle->prepare_for_backward({});
      out.square().mean().backward();
      const auto a = ours->parameters(), b = theirs->parameters();
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(Close(a[i].grad(), b[i].grad())) << "step " << step << " parameter " << i;
      }
      optimizer.step();
      their_optimizer.step();
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
