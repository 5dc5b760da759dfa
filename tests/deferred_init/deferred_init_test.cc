// Deferred modules against the same ones built eagerly with the same seed: bit by bit.
#include "medfusion/deferred_init/deferred_init.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace medfusion::testing {
namespace {

using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named TensorsOf(const torch::nn::Module& module) {
  Named tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void ExpectSame(const torch::nn::Module& deferred, const torch::nn::Module& eager) {
  const Named actual = TensorsOf(deferred), expected = TensorsOf(eager);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_TRUE(actual[i].second.device().is_cpu()) << actual[i].first;
    EXPECT_EQ(actual[i].second.dtype(), expected[i].second.dtype()) << actual[i].first;
    EXPECT_EQ(actual[i].second.strides(), expected[i].second.strides()) << actual[i].first;
    EXPECT_EQ(actual[i].second.requires_grad(), expected[i].second.requires_grad());
    EXPECT_TRUE(at::equal(actual[i].second, expected[i].second)) << actual[i].first;
  }
}

void ExpectAsEager(const MakeModule& make) {
  torch::manual_seed(11);
  const auto eager = make();
  torch::manual_seed(11);
  const auto deferred = DeferInit(make);
  for (const auto& item : deferred->named_parameters()) {
    EXPECT_TRUE(IsDeferred(item.value())) << item.key();
  }
  torch::manual_seed(99);  // values do not depend on what is drawn in between
  Materialize(*deferred);
  ExpectSame(*deferred, *eager);
}

template <typename Impl, typename... Arguments>
MakeModule Make(Arguments... arguments) {
  return [=] { return std::make_shared<Impl>(arguments...); };
}

TEST(DeferInitTest, LinearAndBilinear) {
  ExpectAsEager(Make<torch::nn::LinearImpl>(40, 30));
  ExpectAsEager(Make<torch::nn::LinearImpl>(3, 2));
  ExpectAsEager(Make<torch::nn::BilinearImpl>(4, 5, 6));
}

TEST(DeferInitTest, Convolutions) {
  ExpectAsEager(Make<torch::nn::Conv1dImpl>(torch::nn::Conv1dOptions(3, 8, 5)));
  ExpectAsEager(Make<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(3, 8, 3)));
  ExpectAsEager(Make<torch::nn::ConvTranspose3dImpl>(torch::nn::ConvTranspose3dOptions(3, 8, 3)));
}

TEST(DeferInitTest, EmbeddingWithPaddingIndex) {
  ExpectAsEager(Make<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(50, 8).padding_idx(3)));
  ExpectAsEager(Make<torch::nn::EmbeddingBagImpl>(torch::nn::EmbeddingBagOptions(50, 8)));
}

TEST(DeferInitTest, RecurrentLayers) {
  ExpectAsEager(
      Make<torch::nn::LSTMImpl>(torch::nn::LSTMOptions(8, 16).num_layers(2).bidirectional(true)));
  ExpectAsEager(Make<torch::nn::GRUImpl>(8, 16));
  ExpectAsEager(Make<torch::nn::RNNImpl>(8, 16));
}

TEST(DeferInitTest, Norms) {
  ExpectAsEager(Make<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({6})));
  ExpectAsEager(Make<torch::nn::BatchNorm2dImpl>(6));
  ExpectAsEager(Make<torch::nn::GroupNormImpl>(2, 6));
}

TEST(DeferInitTest, TransformersCloneTheirLayers) {
  const auto layer = torch::nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32);
  ExpectAsEager([=] {
    return torch::nn::TransformerEncoder(torch::nn::TransformerEncoderLayer(layer), 3).ptr();
  });
  ExpectAsEager(Make<torch::nn::MultiheadAttentionImpl>(
      torch::nn::MultiheadAttentionOptions(16, 4).add_bias_kv(true)));
  ExpectAsEager([] {
    return torch::nn::Transformer(torch::nn::TransformerOptions(16, 4, 1, 1).dim_feedforward(32))
        .ptr();
  });
}

// What users write.
struct Own : torch::nn::Module {
  Own() {
    scale = register_parameter("scale", torch::randn({7, 5}) * 0.02 + 1);
    slope = register_parameter("slope", torch::linspace(0, 1, 9).view({3, 3}).t());
    mask = register_parameter("mask", torch::rand_like(scale).gt(0.5).to(torch::kFloat), false);
    order = register_buffer("order", torch::randperm(12));
    mean = register_buffer("mean", torch::tensor({0.485, 0.456, 0.406}).view({1, 3, 1, 1}));
    counts = register_buffer("counts", torch::tensor(std::vector<int64_t>{1, 2, 3}));
    number = register_buffer("number", torch::tensor(3, torch::kLong));
    table = register_buffer("table", torch::stack({torch::arange(4).sin(), torch::ones({4})}));
    named = register_parameter("named", torch::empty({6}, torch::Device(torch::kCPU)));
    torch::nn::init::normal_(named, 1, 2);
    basis = register_parameter("basis", torch::empty({6, 4}));
    torch::nn::init::orthogonal_(basis);
    thin = register_parameter("thin", torch::empty({9, 10}));
    torch::nn::init::sparse_(thin, 0.4);
    wave = register_parameter("wave", torch::full({16, 9}, 0.5));
    torch::nn::init::kaiming_normal_(wave);
    torch::NoGradGuard no_grad;
    wave.slice(0, 2, 9).mul_(scale.sum());
    wave[0].copy_(slope.flatten());
    wave.add_(torch::dropout(torch::ones({16, 9}), 0.5, true));
    drawn = register_parameter("drawn", torch::bernoulli(torch::sigmoid(wave.detach())), false);
  }
  at::Tensor scale, slope, mask, order, mean, counts, number, table, named, basis, thin, wave,
      drawn;
};

TEST(DeferInitTest, UsersParametersAndArithmetic) {
  torch::manual_seed(11);
  const Own eager;
  torch::manual_seed(11);
  const auto deferred = DeferInit([] { return std::make_shared<Own>(); });
  Materialize(*deferred);
  ExpectSame(*deferred, eager);
}

TEST(DeferInitTest, ConversionInsideAndAfterwards) {
  ExpectAsEager([] {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    net->to(torch::kDouble);
    return net.ptr();
  });
  torch::manual_seed(3);
  torch::nn::Linear eager(4, 3);
  eager->to(torch::kBFloat16);
  torch::manual_seed(3);
  auto deferred = DeferInit([] { return torch::nn::Linear(4, 3); });
  deferred->to(torch::kBFloat16);
  Materialize(*deferred);
  ExpectSame(*deferred, *eager);
}

TEST(DeferInitTest, TensorsOneByOneInAnyOrderAndRepeatedly) {
  const auto make = [] {
    const auto layer = torch::nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32);
    return torch::nn::TransformerEncoder(torch::nn::TransformerEncoderLayer(layer), 2).ptr();
  };
  torch::manual_seed(5);
  const auto eager = make();
  torch::manual_seed(5);
  const auto deferred = DeferInit(make);
  const Named tensors = TensorsOf(*deferred), expected = TensorsOf(*eager);
  for (size_t k = 0; k < tensors.size(); ++k) {
    const size_t i = (k * 7 + 5) % tensors.size();
    EXPECT_TRUE(at::equal(ComputeDeferred(tensors[i].second), expected[i].second)) << i;
    EXPECT_TRUE(IsDeferred(tensors[i].second));
  }
  for (size_t i = tensors.size(); i-- > 0;) {
    Materialize(std::vector<at::Tensor>{tensors[i].second});
    EXPECT_TRUE(at::equal(tensors[i].second, expected[i].second)) << i;
  }
}

TEST(DeferInitTest, SeedsSetAndGeneratorsPassedInsideCount) {
  const auto make = [] {
    auto generator = at::detail::createCPUGenerator(42);
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter("a", torch::randn({20}));
    module->register_parameter("b", at::randn({20}, generator));
    torch::manual_seed(11);
    module->register_parameter("c", torch::randn({20}));
    module->register_parameter("d", at::randn({3, 20}, generator));
    module->register_parameter("e", torch::rand({20}));
    return module;
  };
  ExpectAsEager(make);
}

TEST(DeferInitTest, ModulesDeferredOneAfterTheOtherDiffer) {
  torch::manual_seed(1);
  const auto first = DeferInit([] { return torch::nn::Linear(30, 30); });
  const auto second = DeferInit([] { return torch::nn::Linear(30, 30); });
  torch::manual_seed(1);
  const auto again = DeferInit([] { return torch::nn::Linear(30, 30); });
  const auto second_again = DeferInit([] { return torch::nn::Linear(30, 30); });
  for (const auto& module : {first, second, again, second_again}) Materialize(*module);
  EXPECT_FALSE(at::equal(first->weight, second->weight));
  EXPECT_TRUE(at::equal(first->weight, again->weight));
  EXPECT_TRUE(at::equal(second->weight, second_again->weight));
}

TEST(DeferInitTest, TiedParametersStayTiedAndTrain) {
  struct Tied : torch::nn::Module {
    Tied() {
      embedding = register_module("embedding", torch::nn::Embedding(9, 4));
      again = register_parameter("again", embedding->weight);
    }
    torch::nn::Embedding embedding{nullptr};
    at::Tensor again;
  };
  const auto net = DeferInit([] { return std::make_shared<Tied>(); });
  Materialize(*net);
  EXPECT_TRUE(net->again.is_same(net->embedding->weight));
  net->embedding->forward(torch::zeros({2}, torch::kLong)).sum().backward();
  EXPECT_TRUE(net->again.grad().defined());
}

TEST(DeferInitTest, TensorsFromOutsideAreReadAsTheyWereThen) {
  std::vector<float> memory = {1, 2, 3};
  at::Tensor outside = torch::ones({3});
  at::Tensor module_tensor;
  const auto net = DeferInit([&] {
    auto module = std::make_shared<torch::nn::Module>();
    at::Tensor a = module->register_parameter("a", torch::zeros({3}));
    at::Tensor b = module->register_parameter("b", torch::zeros({3}));
    torch::NoGradGuard no_grad;
    a.copy_(outside);
    b.copy_(torch::from_blob(memory.data(), {3}));
    outside.add_(1);
    return module;
  });
  memory = {0, 0, 0};
  EXPECT_EQ(outside[0].item<float>(), 2);  // operators on real tensors run at once
  Materialize(*net);
  EXPECT_TRUE(at::equal(net->named_parameters()["a"], torch::ones({3})));
  EXPECT_TRUE(at::equal(net->named_parameters()["b"], torch::tensor({1.f, 2.f, 3.f})));
}

TEST(DeferInitTest, ADeferredModuleHasNoMemory) {
  const auto net = DeferInit([] {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter("large", torch::zeros({1 << 17, 1 << 17}));  // 64 GiB
    module->register_parameter("small", torch::randn({3}));
    return module;
  });
  EXPECT_EQ(net->named_parameters()["large"].numel(), int64_t{1} << 34);
  EXPECT_EQ(ComputeDeferred(net->named_parameters()["small"]).numel(), 3);
}

}  // namespace
}  // namespace medfusion::testing
