// Modules without memory, given their values unit by unit by FSDPWrapper.
#include "medfusion/deferred_init/deferred_init.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "medfusion/fsdp/fsdp.h"
#include "medfusion/fsdp/torchscript.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

FSDPOptions EveryModuleAUnit() {
  FSDPOptions options;
  options.min_num_params = 0;
  return options;
}

template <typename M>
std::shared_ptr<Model> InFloat64() {
  auto model = std::make_shared<M>();
  model->to(at::kDouble);
  return model;
}

at::Tensor Batch(const torch::nn::Module& model, int rank) {
  const at::Tensor numbers = torch::arange(4 * kFeatures).view({4, kFeatures}) + 5 * rank;
  const bool tokens = model.named_parameters().contains("embedding.weight");
  return tokens ? numbers.remainder(kTokens) : numbers.to(at::kDouble).sin();
}

// Ranks share the generator of the process, so modules are built before the ranks start.
template <typename M>
std::vector<std::shared_ptr<Model>> DeferredOnRanks(int world, bool same_seed) {
  std::vector<std::shared_ptr<Model>> models;
  for (int rank = 0; rank < world; ++rank) {
    torch::manual_seed(same_seed ? 11 : 11 + rank);
    models.push_back(DeferInit(InFloat64<M>));
  }
  return models;
}

template <typename M>
void ExpectAsEager(int world, bool sync) {
  torch::manual_seed(11);
  const auto eager = InFloat64<M>();
  const auto deferred = DeferredOnRanks<M>(world, /*same_seed=*/!sync);
  std::vector<std::shared_ptr<Model>> built;
  for (int rank = 0; rank < world; ++rank) {
    torch::manual_seed(11);
    built.push_back(InFloat64<M>());
  }
  RunRanks(world, [&](ProcessGroup& group) {
    FSDPOptions options = EveryModuleAUnit();
    options.sync_module_states = sync;
    FSDPWrapper<Model> model(deferred[group.rank()], options);
    FSDPWrapper<Model> reference(built[group.rank()], options);
    {
      const FullParameters scope(model, /*writeback=*/false);
      const auto expected = eager->named_parameters();
      for (const auto& item : deferred[group.rank()]->named_parameters()) {
        EXPECT_TRUE(at::equal(item.value(), expected[item.key()])) << item.key();
      }
    }
    for (const auto& item : deferred[group.rank()]->named_buffers()) {
      EXPECT_TRUE(at::equal(item.value(), eager->named_buffers()[item.key()])) << item.key();
    }
    // Trains as one that was built eagerly, bit by bit.
    const at::Tensor x = Batch(*eager, group.rank());
    for (FSDPWrapper<Model>* wrapper : {&model, &reference}) {
      torch::optim::AdamW optimizer(wrapper->parameters(), torch::optim::AdamWOptions(0.1));
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        wrapper->forward(x).square().sum().backward();
        optimizer.step();
      }
    }
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(model->parameters()[i], reference->parameters()[i])) << i;
    }
  });
}

class NormAndBuffers : public Model {
 public:
  NormAndBuffers() {
    layer_ = register_module("layer", torch::nn::Linear(kFeatures, 5));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(5));
    noise_ = register_buffer("noise", torch::randn({5}));
    frozen_ = register_parameter("frozen", torch::rand({1}), /*requires_grad=*/false);
  }
  at::Tensor forward(at::Tensor x) override {
    return norm_->forward(layer_->forward(x)) + noise_ * frozen_;
  }

 private:
  torch::nn::Linear layer_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
  at::Tensor noise_, frozen_;
};

class FsdpDeferredInitTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, FsdpDeferredInitTest, ::testing::Values(1, 2, 3, 4));

TEST_P(FsdpDeferredInitTest, RankZerosValuesAreThoseOfAnEagerModel) {
  ExpectAsEager<Text>(GetParam(), /*sync=*/true);
  ExpectAsEager<Signal>(GetParam(), /*sync=*/true);
}

TEST_P(FsdpDeferredInitTest, EveryRankComputesItsOwnWithoutSync) {
  ExpectAsEager<Text>(GetParam(), /*sync=*/false);
}

TEST_P(FsdpDeferredInitTest, TiedFrozenAndBuffers) {
  ExpectAsEager<TiedDecoder>(GetParam(), /*sync=*/true);
  ExpectAsEager<NormAndBuffers>(GetParam(), /*sync=*/true);
}

// Counts what tensors of the thread that allocates hold; each rank is a thread.
class CountingAllocator : public c10::Allocator {
 public:
  struct Count {
    std::atomic<int64_t> live{0}, peak{0};
  };
  static thread_local Count* count;

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr inner = base_->allocate(bytes);
    if (count == nullptr) return inner;
    const int64_t live = count->live += static_cast<int64_t>(bytes);
    count->peak = std::max<int64_t>(count->peak, live);
    void* data = inner.get();
    return {data, new Piece{std::move(inner), static_cast<int64_t>(bytes), count}, &Free,
            c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Piece {
    c10::DataPtr data;
    int64_t bytes;
    Count* count;
  };
  static void Free(void* context) {
    auto* piece = static_cast<Piece*>(context);
    piece->count->live -= piece->bytes;
    delete piece;
  }
  c10::Allocator* const base_ = c10::GetDefaultCPUAllocator();
};
thread_local CountingAllocator::Count* CountingAllocator::count = nullptr;

TEST(FsdpDeferredInitMemoryTest, ThePeakIsTheShardsAndTheUnitInTheMaking) {
  constexpr int kLayers = 12, kWidth = 128, kWorld = 2;
  const auto make = [=] {
    torch::nn::Sequential net;
    for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
    return net;
  };
  std::vector<torch::nn::Sequential> nets;
  for (int rank = 0; rank < kWorld; ++rank) nets.push_back(DeferInit(make));
  static CountingAllocator allocator;
  static CountingAllocator::Count counts[kWorld];
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  RunRanks(kWorld, [&](ProcessGroup& group) {
    CountingAllocator::Count& count = counts[group.rank()];
    CountingAllocator::count = &count;
    FSDPWrapper model(nets[group.rank()], EveryModuleAUnit());
    CountingAllocator::count = nullptr;
    const int64_t parameter = kWidth * kWidth * 4, unit = parameter + kWidth * 4;
    const int64_t shards = kLayers * unit / kWorld;
    // States of the generator, one per draw, and small change.
    const int64_t small = group.rank() == 0 ? (2 * kLayers + 8) * 5056 : 4096;
    // Gloo's two threads may hold a unit that was broadcast a moment longer.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (count.live > shards + small && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_GE(count.live, shards);
    EXPECT_LE(count.live, shards + small);
    // The last unit is whole beside the other shards; rank 0 computes one parameter at a time.
    EXPECT_GE(count.peak, shards + unit / 2);
    EXPECT_LE(count.peak,
              shards + unit / 2 + 2 * unit + (group.rank() == 0 ? parameter : 0) + small);
    const int64_t whole = kLayers * unit;
    EXPECT_LT(count.peak, whole);
  });
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), /*priority=*/1);
}

// As a library might build its layers; nothing records their values.
class OnMeta : public Model {
 public:
  OnMeta() {
    weight_ = register_parameter("weight", torch::empty({1, kFeatures}, at::kMeta));
    bias_ = register_parameter("bias", torch::empty({1}, at::kMeta));
    shift_ = register_buffer("shift", torch::empty({1}, at::kMeta));
  }
  at::Tensor forward(at::Tensor x) override { return torch::linear(x, weight_, bias_) + shift_; }

 private:
  at::Tensor weight_, bias_, shift_;
};

TEST(FsdpDeferredInitLibTorchTest, ModulesCannotBeMovedToMeta) {
  torch::nn::Linear linear(2, 2);
  EXPECT_ANY_THROW(linear->to(at::kMeta));
}

TEST_P(FsdpDeferredInitTest, MetaTensorsWithoutASourceOfValuesAreRefusedByName) {
  const auto errors = RunRanksThatMayFail(
      GetParam(), [](ProcessGroup&) { FSDPWrapper model(std::make_shared<OnMeta>()); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("parameter 'weight'"), HasSubstr("DeferInit"),
                                 HasSubstr("param_init_fn"))));
}

TEST_P(FsdpDeferredInitTest, AFunctionGivesMetaTensorsTheirValues) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    FSDPOptions options = EveryModuleAUnit();
    std::string called;
    options.param_init_fn = [&](const std::string& name, at::Tensor& tensor) {
      called += name + " ";
      tensor.fill_(name == "weight" ? 1 : 2);
    };
    auto net = std::make_shared<OnMeta>();
    FSDPWrapper model(net, options);
    EXPECT_EQ(called, group.rank() == 0 ? "weight bias shift " : "");
    EXPECT_EQ(net->named_buffers()["shift"].item<float>(), 2);
    const at::Tensor y = model->forward(torch::ones({3, kFeatures}));
    EXPECT_TRUE(y.eq(kFeatures + 4).all().item<bool>());
    y.sum().backward();
    for (const at::Tensor& slice : model->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

TEST_P(FsdpDeferredInitTest, OnlyRankZeroNeedsValuesAndTheOthersModulesMayBeOnMeta) {
  RunRanks(GetParam(), [](ProcessGroup& group) {
    auto net = std::make_shared<OnMeta>();
    if (group.rank() == 0) {
      for (const auto& item : net->named_parameters()) {
        GiveValue(item.value(), torch::full(item.value().sizes(), 4.0f));
      }
      GiveValue(net->buffers()[0], torch::full({1}, 5.0f));
    }
    FSDPWrapper model(net, EveryModuleAUnit());
    const at::Tensor y = model->forward(torch::ones({3, kFeatures}));
    EXPECT_TRUE(y.eq(4 * kFeatures + 9).all().item<bool>());
  });
}

TEST_P(FsdpDeferredInitTest, AFunctionThatThrowsOnRankZeroIsAnErrorOnAllRanks) {
  const auto errors = RunRanksThatMayFail(GetParam(), [](ProcessGroup&) {
    FSDPOptions options;
    options.param_init_fn = [](const std::string& name, at::Tensor&) {
      if (name == "bias") throw std::runtime_error("no such key");
    };
    FSDPWrapper model(std::make_shared<OnMeta>(), options);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("parameter 'bias'"), HasSubstr("no such key"))));
}

TEST(FsdpDeferredInitScriptTest, ATorchScriptModuleLoadedToMetaTakesAFunction) {
  torch::jit::Module net("Net");
  net.register_parameter("weight", torch::ones({2, 3}), /*is_buffer=*/false);
  net.define("def forward(self, x):\n    return torch.matmul(x, self.weight.t())\n");
  std::stringstream file;
  net.save(file);
  const std::string bytes = file.str();
  RunRanks(2, [&](ProcessGroup&) {
    std::istringstream copy(bytes);
    torch::jit::Module loaded = torch::jit::load(copy, at::Device(at::kMeta));
    FSDPOptions options;
    options.param_init_fn = [](const std::string&, at::Tensor& tensor) { tensor.fill_(3); };
    FSDPWrapper model(loaded, options);
    const at::Tensor y = model->forward(torch::ones({1, 3})).toTensor();
    EXPECT_TRUE(y.eq(9).all().item<bool>());
  });
}

}  // namespace
}  // namespace medfusion::testing
