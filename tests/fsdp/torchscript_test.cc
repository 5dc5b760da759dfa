#include "medfusion/fsdp/torchscript.h"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

#include "medfusion/fsdp/full_parameters.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

constexpr int kSteps = 8;  // the profiling executor changes what it runs after two
constexpr int kBatch = 12;

// Values depend on the place alone.
at::Tensor Values(std::vector<int64_t> sizes, double start) {
  const int64_t numel = at::empty(sizes).numel();
  return ((at::arange(numel, at::kDouble) + start).cos() * 0.5).view(sizes);
}

torch::jit::Module Layer(const std::string& name, int64_t in, int64_t out, double start) {
  torch::jit::Module layer(name);
  layer.register_parameter("weight", Values({out, in}, start), /*is_buffer=*/false);
  layer.register_parameter("bias", Values({out}, start + 1), /*is_buffer=*/false);
  layer.define(R"(
    def forward(self, x):
        return torch.tanh(torch.matmul(x, self.weight.t()) + self.bias)
  )");
  return layer;
}

torch::jit::Module MakeScript() {
  torch::jit::Module net("Net");
  net.register_module("first", Layer("First", 5, 7, 1));
  net.register_module("last", Layer("Last", 7, 1, 2));
  net.register_buffer("gain", at::full({1}, 1.5, at::kDouble));
  net.define(R"(
    def forward(self, x):
        return self.last.forward(self.first.forward(x) * self.gain)
  )");
  for (at::Tensor parameter : net.parameters()) parameter.requires_grad_(true);
  return net;
}

template <typename Forward>
void Train(const std::vector<at::Tensor>& parameters, int begin, int end, Forward&& forward) {
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x = Values({kBatch, 5}, 10 * step).slice(0, begin, end);
    optimizer.zero_grad();
    (forward(x) - x.sum(-1, true)).square().mean().backward();
    optimizer.step();
  }
}

class FsdpTorchScriptTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpTorchScriptTest, ::testing::Values(1, 2, 3));

TEST_P(FsdpTorchScriptTest, TrainsAsOneRankOnTheJoinedBatch) {
  torch::jit::Module alone = MakeScript();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : alone.parameters()) expected.push_back(parameter);
  Train(expected, 0, kBatch, [&](const at::Tensor& x) { return alone.forward({x}).toTensor(); });

  RunRanks(GetParam(), [&](ProcessGroup& group) {
    torch::jit::Module net = MakeScript();
    FSDPOptions options;
    options.min_num_params = 0;
    FSDPWrapper model(net, options);
    ASSERT_EQ(model->sharded_model().units().size(), 2u);
    EXPECT_EQ(model->sharded_model().units()[1]->unit(), "last");
    EXPECT_EQ(model->named_parameters()[3].first, "last.bias");
    const int rows = kBatch / group.size();
    Train(model->parameters(), group.rank() * rows, (group.rank() + 1) * rows,
          [&](const at::Tensor& x) { return model->forward(x).toTensor(); });
    const FullParameters scope(model, /*writeback=*/false);
    size_t i = 0;
    for (const at::Tensor& parameter : net.parameters()) {
      EXPECT_LE((parameter - expected[i]).abs().max().item<double>(), 1e-12) << i;
      ++i;
    }
  });
}

TEST(FsdpTorchScriptTest, SavesItsWholeWeightsInsideFullParameters) {
  RunRanks(2, [](ProcessGroup&) {
    torch::jit::Module net = MakeScript();
    FSDPWrapper model(net);
    std::stringstream file;
    {
      const FullParameters scope(model, false);
      net.save(file);
    }
    const torch::jit::Module loaded = torch::jit::load(file);
    const torch::jit::Module reference = MakeScript();
    std::vector<at::Tensor> expected;
    for (const at::Tensor& parameter : reference.parameters()) expected.push_back(parameter);
    size_t i = 0;
    for (const at::Tensor& parameter : loaded.parameters()) {
      EXPECT_TRUE(at::equal(parameter, expected[i++]));
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
