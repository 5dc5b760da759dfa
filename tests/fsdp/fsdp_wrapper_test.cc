#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

FSDPOptions EveryModuleAUnit() {
  FSDPOptions options;
  options.min_num_params = 0;
  return options;
}

template <typename Call>
std::string ErrorOf(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

at::Tensor Input(int rank) {
  return (torch::arange(4 * kFeatures, at::kDouble).view({4, kFeatures}) + 5.0 * rank).sin();
}

TEST(FsdpWrapperTest, WrapsHoldersAndKeepsNamesAndShapes) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Linear linear(3, 2);
    FSDPWrapper model(linear);
    static_assert(std::is_same_v<decltype(model), FSDPWrapper<torch::nn::Linear>>);
    ASSERT_EQ(model->named_parameters().size(), 2u);
    EXPECT_EQ(model->named_parameters()[0].first, "weight");
    EXPECT_EQ(model->named_parameters()[1].first, "bias");
    EXPECT_EQ(linear->weight.sizes(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(model->forward(torch::ones({5, 3})).sizes(), (std::vector<int64_t>{5, 2}));
  });
}

TEST(FsdpWrapperTest, EachRankHoldsItsShareAndNothingElseBetweenSteps) {
  RunRanks(4, [](ProcessGroup& group) {
    torch::nn::Linear linear(3, 3);  // 12 elements
    FSDPWrapper model(linear);
    int64_t numel = 0;
    for (const at::Tensor& slice : model->parameters()) numel += slice.numel();
    EXPECT_EQ(numel, 3);
    // Rank 3 holds the bias, the others the weight: the rest of the slices are empty.
    EXPECT_EQ(model->parameters()[1].numel(), group.rank() == 3 ? 3 : 0);
    EXPECT_EQ(linear->weight.storage().data(), nullptr);
    EXPECT_ANY_THROW(linear->weight.data_ptr<float>());
  });
}

TEST(FsdpWrapperTest, ParametersAndBuffersBecomeRankZeros) {
  RunRanks(3, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(4);
    {
      torch::NoGradGuard no_grad;
      norm->weight.fill_(group.rank() + 1);
      norm->running_mean.fill_(group.rank() + 10);
      norm->num_batches_tracked.fill_(group.rank() + 100);
    }
    FSDPWrapper model(norm);
    EXPECT_TRUE(norm->running_mean.eq(10).all().item<bool>());
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 100);
    const FullParameters scope(model);
    EXPECT_TRUE(norm->weight.eq(1).all().item<bool>());
  });
}

TEST(FsdpWrapperTest, BatchNormKeepsItsStatisticsAndTrains) {
  RunRanks(2, [](ProcessGroup&) {
    // The same batch on both ranks: then a batch norm of each rank's own equals one rank alone.
    const at::Tensor x = Input(0);
    torch::nn::BatchNorm1d alone(kFeatures), norm(kFeatures);
    alone->to(at::kDouble);
    norm->to(at::kDouble);
    FSDPWrapper model(norm);
    for (int step = 0; step < 3; ++step) {
      alone->zero_grad();
      model->zero_grad();
      alone->forward(x * (step + 1)).square().sum().backward();
      model->forward(x * (step + 1)).square().sum().backward();
    }
    EXPECT_TRUE(at::equal(norm->running_mean, alone->running_mean));
    EXPECT_TRUE(at::equal(norm->running_var, alone->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
    // Of 12 elements, rank 0 holds the weight and rank 1 the bias.
    const at::Tensor& mine = model->group()->rank() == 0 ? alone->weight : alone->bias;
    const at::Tensor slice = model->parameters()[model->group()->rank()];
    EXPECT_TRUE(at::allclose(slice.grad(), mine.grad(), 1e-12, 1e-12));
    model->eval();
    alone->eval();
    EXPECT_TRUE(at::allclose(model->forward(x), alone->forward(x), 1e-12, 1e-12));
  });
}

TEST(FsdpWrapperTest, AParkedParameterIsAnErrorThatNamesItAndTheScope) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    const at::Tensor weight = net->named_parameters()["net.2.weight"];
    const auto read = [&] { weight.sum(); };
    const auto expected = AllOf(HasSubstr("aten::sum"), HasSubstr("'net.2.weight' of unit 'net.2'"),
                                HasSubstr("FullParameters"));
    EXPECT_THAT(ErrorOf(read), expected);
    const at::Tensor loss = model->forward(Input(0)).sum();
    EXPECT_THAT(ErrorOf(read), expected) << "after forward, where some units are still in memory";
    loss.backward();
    EXPECT_THAT(ErrorOf(read), expected);
    EXPECT_THAT(ErrorOf([&] { weight.t()[0].item<double>(); }), HasSubstr("net.2.weight"));
    // Shapes are not values.
    EXPECT_EQ(at::zeros_like(weight).sizes(), weight.sizes());
    EXPECT_EQ(weight.t().size(0), weight.size(1));
  });
}

TEST(FsdpWrapperTest, FullParametersCanBeReadAndWrittenBack) {
  RunRanks(3, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    {
      const FullParameters scope(model, /*writeback=*/false);
      for (const auto& item : net->named_parameters()) {
        EXPECT_TRUE(at::equal(item.value(), reference->named_parameters()[item.key()]))
            << item.key();
      }
      EXPECT_THAT(ErrorOf([&] {
                    torch::NoGradGuard no_grad;
                    net->parameters()[0].zero_();
                  }),
                  AllOf(HasSubstr("net.0.weight"), HasSubstr("read-only")));
    }
    {
      const FullParameters scope(model);
      torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) parameter.mul_(2);
      for (at::Tensor& parameter : reference->parameters()) parameter.mul_(2);
      EXPECT_THAT(ErrorOf([&] { const FullParameters second(model); }), HasSubstr("do not nest"));
      EXPECT_THAT(ErrorOf([&] { model->forward(Input(0)); }), HasSubstr("close the scope first"));
    }
    EXPECT_TRUE(at::allclose(model->forward(Input(0)), reference->forward(Input(0)), 1e-12, 0));
  });
}

TEST(FsdpWrapperTest, LibTorchSavesTheModuleInsideFullParameters) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    std::stringstream file;
    {
      const FullParameters scope(model, /*writeback=*/false);
      torch::serialize::OutputArchive archive;
      net->save(archive);
      archive.save_to(file);
    }
    Mlp loaded;
    loaded.to(at::kDouble);
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    loaded.load(archive);
    for (const auto& item : loaded.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), reference->named_parameters()[item.key()]));
    }
  });
}

TEST(FsdpWrapperTest, EvaluatesWithoutGradientsAndParksAfterwards) {
  RunRanks(3, [](ProcessGroup& group) {
    const auto reference = Seeded<Text>();
    auto net = Seeded<Text>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    const at::Tensor x = torch::arange(12, at::kLong).view({2, 6}) + group.rank();
    const at::Tensor expected = reference->forward(x).detach();
    const auto expect_parked = [&] {
      for (const auto& unit : model->sharded_model().units()) EXPECT_FALSE(unit->in_memory());
    };
    {
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-12, 1e-13));
      expect_parked();
    }
    {
      c10::InferenceMode inference;
      EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-12, 1e-13));
      expect_parked();
    }
    model->forward(x).sum().backward();
    expect_parked();
    for (const at::Tensor& slice : model->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

// Linear, then a failure where and when told, then linear.
class Failing : public torch::nn::Module {
 public:
  Failing() {
    first = register_module("first", torch::nn::Linear(kFeatures, 3));
    last = register_module("last", torch::nn::Linear(3, 1));
    to(at::kDouble);
  }
  struct Fuse : public torch::autograd::Function<Fuse> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                              bool blow) {
      context->saved_data["blow"] = blow;
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      if (context->saved_data["blow"].toBool()) throw std::runtime_error("the fuse blew");
      return {gradients[0], {}};
    }
  };
  at::Tensor forward(const at::Tensor& x, bool fail_forward, bool fail_backward) {
    const at::Tensor hidden = Fuse::apply(first->forward(x), fail_backward);
    if (fail_forward) throw std::runtime_error("forward gave up");
    return last->forward(hidden);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

TEST(FsdpWrapperTest, AnExceptionInForwardOrBackwardLeavesItUsable) {
  RunRanks(2, [](ProcessGroup& group) {
    auto net = std::make_shared<Failing>();
    FSDPWrapper model(net, EveryModuleAUnit());
    const at::Tensor x = Input(group.rank());
    const auto expect_clean = [&] {
      for (const auto& unit : model->sharded_model().units()) EXPECT_FALSE(unit->in_memory());
      for (const at::Tensor& slice : model->parameters()) EXPECT_FALSE(slice.grad().defined());
      for (const at::Tensor& parameter : net->parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
    };
    std::vector<at::Tensor> expected;
    model->forward(x, false, false).square().sum().backward();
    for (const at::Tensor& slice : model->parameters()) expected.push_back(slice.grad().clone());
    model->zero_grad();

    EXPECT_THAT(ErrorOf([&] { model->forward(x, true, false); }), HasSubstr("forward gave up"));
    expect_clean();
    EXPECT_THAT(ErrorOf([&] { model->forward(x, false, true).square().sum().backward(); }),
                HasSubstr("the fuse blew"));
    expect_clean();

    model->forward(x, false, false).square().sum().backward();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(model->parameters()[i].grad(), expected[i])) << i;
    }
  });
}

TEST(FsdpWrapperTest, FrozenParametersStayBitwiseUnderWeightDecay) {
  RunRanks(3, [](ProcessGroup& group) {
    auto net = std::make_shared<Frozen>();
    const at::Tensor before = net->first->weight.detach().clone();
    FSDPOptions options = EveryModuleAUnit();
    FSDPWrapper model(net, options);
    group.Broadcast(before, 0)->Wait();
    torch::optim::AdamW optimizer(model->parameters(),
                                  torch::optim::AdamWOptions(0.1).weight_decay(0.5));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      model->forward(Input(group.rank()).to(at::kFloat)).square().sum().backward();
      optimizer.step();
    }
    const FullParameters scope(model, false);
    EXPECT_TRUE(at::equal(net->first->weight, before));
    EXPECT_FALSE(net->first->weight.requires_grad());
  });
}

TEST(FsdpWrapperTest, TiedWeightsTrainEveryRow) {
  RunRanks(4, [](ProcessGroup&) {
    auto net = std::static_pointer_cast<TiedDecoder>(Seeded<TiedDecoder>());
    FSDPWrapper model(net, EveryModuleAUnit());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    const at::Tensor before = [&] {
      const FullParameters scope(model, false);
      return net->weight().detach().clone();
    }();
    model->forward(torch::ones({2, 3}, at::kLong)).square().sum().backward();
    optimizer.step();
    const FullParameters scope(model, false);
    EXPECT_TRUE(net->weight().ne(before).all().item<bool>());
  });
}

TEST(FsdpWrapperTest, AModelThatWritesToAParameterInForwardIsRefused) {
  class Writer : public torch::nn::Module {
   public:
    Writer() { weight = register_parameter("weight", torch::ones({4})); }
    at::Tensor forward(const at::Tensor& x) {
      torch::NoGradGuard no_grad;
      weight.clamp_(-1, 1);
      return x * weight;
    }
    at::Tensor weight;
  };
  RunRanks(2, [](ProcessGroup&) {
    FSDPWrapper model(std::make_shared<Writer>());
    EXPECT_THAT(ErrorOf([&] { model->forward(torch::ones({4})); }),
                AllOf(HasSubstr("aten::clamp_"), HasSubstr("'weight'"), HasSubstr("optimizer")));
  });
}

TEST(FsdpWrapperTest, AnotherThreadInsideForwardIsRefused) {
  class Threaded : public torch::nn::Module {
   public:
    Threaded() { layer = register_module("layer", torch::nn::Linear(2, 2)); }
    at::Tensor forward(const at::Tensor& x) {
      std::thread([&] { error = ErrorOf([&] { layer->forward(x); }); }).join();
      std::thread([&] { nested = ErrorOf([&] { (*wrapper)->forward(x); }); }).join();
      return x;
    }
    torch::nn::Linear layer{nullptr};
    FSDPWrapper<Threaded>* wrapper = nullptr;
    std::string error, nested;
  };
  RunRanks(2, [](ProcessGroup&) {
    auto net = std::make_shared<Threaded>();
    FSDPWrapper model(net);
    net->wrapper = &model;
    model->forward(torch::ones({1, 2}));
    EXPECT_THAT(net->error, HasSubstr("on another thread"));
    EXPECT_THAT(net->nested, HasSubstr("one thread uses an FSDPWrapper"));
  });
}

// Runs its units forwards or backwards.
class TwoWays : public torch::nn::Module {
 public:
  explicit TwoWays(std::vector<std::string> names) {
    for (const std::string& name : names) {
      layers_.push_back(register_module(name, torch::nn::Linear(3, 3)));
    }
  }
  at::Tensor forward(at::Tensor x, bool first_first) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[first_first ? i : layers_.size() - 1 - i]->forward(x);
    }
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

TEST(FsdpWrapperTest, DifferentOrdersOfUnitsAreFoundInTheFirstStepByName) {
  RunRanks(2, [](ProcessGroup& group) {
    FSDPOptions options = EveryModuleAUnit();
    options.forward_prefetch = options.backward_prefetch = 0;
    FSDPWrapper model(std::make_shared<TwoWays>(std::vector<std::string>{"a", "b"}), options);
    const auto in_two_orders = [&] {
      return model->forward(torch::ones({1, 3}), group.rank() == 0).sum();
    };
    EXPECT_THAT(ErrorOf(in_two_orders),
                AllOf(HasSubstr("unit 'a' on rank 0"), HasSubstr("unit 'b' on rank 1")));
    // Later, at the end of backward, on all ranks, before gradients are seen.
    model->forward(torch::ones({1, 3}), true).sum().backward();
    model->zero_grad();
    EXPECT_THAT(ErrorOf([&] { in_two_orders().backward(); }),
                HasSubstr("different orders in this step"));
    for (const at::Tensor& slice : model->parameters()) EXPECT_FALSE(slice.grad().defined());
    // Without gradients, at the end of forward.
    const torch::NoGradGuard no_grad;
    model->forward(torch::ones({1, 3}), true);
    EXPECT_THAT(ErrorOf(in_two_orders), HasSubstr("different orders in this step"));
  });
}

TEST(FsdpWrapperTest, ARankThatPagesOtherUnitsThanTheOthersSaysSoAndAllEnd) {
  GroupOptions options;
  options.timeout = std::chrono::seconds(2);
  const auto errors = RunRanksThatMayFail(
      2,
      [](ProcessGroup& group) {
        FSDPWrapper model(std::make_shared<TwoWays>(std::vector<std::string>{"a", "b", "c", "d"}),
                          EveryModuleAUnit());
        model->forward(torch::ones({1, 3}), true).sum().backward();
        model->forward(torch::ones({1, 3}), group.rank() == 0).sum().backward();
      },
      options);
  EXPECT_THAT(errors[0], Not(IsEmpty()));
  EXPECT_THAT(errors[1], AnyOf(HasSubstr("left the order of units of earlier steps, with unit 'd'"),
                               HasSubstr("different orders in this step")));
}

TEST(FsdpWrapperTest, ClipGradNormIsOfTheWholeGradient) {
  for (const double magnitude : {1.0, 1e200}) {
    RunRanks(2, [magnitude](ProcessGroup& group) {
      torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
      linear->to(at::kDouble);
      FSDPWrapper model(linear);
      at::Tensor x = at::full({1, 2}, 3 * magnitude, at::kDouble);
      x[0][1] = 4 * magnitude;
      model->forward(x).sum().backward();
      const GradientNorm norm = model->ClipGradNorm(1);
      EXPECT_TRUE(norm.finite);
      EXPECT_DOUBLE_EQ(norm.norm, 5 * magnitude);
      const double mine = model->parameters()[0].grad()[0].item<double>();
      EXPECT_NEAR(mine, group.rank() == 0 ? 0.6 : 0.8, 1e-15);
    });
  }
}

TEST(FsdpWrapperTest, ANormThatIsNotFiniteIsOneDecisionAndLeavesGradientsAlone) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    RunRanks(2, [bad](ProcessGroup& group) {
      torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
      linear->to(at::kDouble);
      FSDPWrapper model(linear);
      model->forward(at::full({1, 2}, 3, at::kDouble)).sum().backward();
      if (group.rank() == 1) model->parameters()[0].mutable_grad().fill_(bad);
      EXPECT_FALSE(model->ClipGradNorm(1).finite);
      if (group.rank() == 0) EXPECT_EQ(model->parameters()[0].grad()[0].item<double>(), 3);
    });
  }
}

// Units of different sizes: what is counted is exact.
TEST(FsdpWrapperTest, MemoryOfWholeUnitsIsThatOfTwoNeighboursAndOneGradient) {
  RunRanks(2, [](ProcessGroup& group) {
    const std::vector<int64_t> widths = {kFeatures, 10, 30, 8, 20, 4};
    torch::nn::Sequential net;
    std::vector<int64_t> bytes;  // of each unit, padded to two ranks
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      net->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
      const int64_t numel = (widths[i] + 1) * widths[i + 1];
      bytes.push_back((numel + numel % 2) * 8);
    }
    net->to(at::kDouble);
    FSDPWrapper model(net, EveryModuleAUnit());
    for (int step = 0; step < 4; ++step) {
      model->forward(Input(group.rank())).sum().backward();
    }
    int64_t neighbours = 0;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      neighbours = std::max(neighbours, bytes[i] + bytes[i + 1]);
    }
    EXPECT_EQ(model->sharded_model().units().size(), bytes.size());
    EXPECT_EQ(model->sharded_model().full_buffers().peak_bytes(), neighbours);
    EXPECT_EQ(model->sharded_model().gradient_buffers().peak_bytes(),
              *std::max_element(bytes.begin(), bytes.end()));
  });
}

TEST(FsdpWrapperTest, TheNextUnitIsGatheredAheadInTheOrderOfTheFirstStep) {
  RunRanks(2, [](ProcessGroup&) {
    // A layer that looks which units have memory when it runs.
    class Watched : public torch::nn::Module {
     public:
      Watched() {
        for (const char* name : {"a", "b", "c", "d"}) {
          layers.push_back(register_module(name, torch::nn::Linear(3, 3)));
        }
      }
      at::Tensor forward(at::Tensor x) {
        for (auto& layer : layers) {
          x = layer->forward(x);
          if (look) look();
        }
        return x;
      }
      std::vector<torch::nn::Linear> layers;
      std::function<void()> look;
    };
    auto net = std::make_shared<Watched>();
    FSDPWrapper model(net, EveryModuleAUnit());
    std::vector<std::string> seen;
    net->look = [&] {
      std::string names;
      for (const auto& unit : model->sharded_model().units()) {
        if (unit->in_memory()) names += unit->unit();
      }
      seen.push_back(names);
    };
    model->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_THAT(seen, ElementsAre("a", "ab", "bc", "cd"));
    seen.clear();
    model->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_THAT(seen, ElementsAre("ab", "bc", "cd", "cd"));
  });
}

TEST(FsdpWrapperTest, StateDescribesWhereEachSliceBelongs) {
  RunRanks(3, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    for (const ShardedTensor& tensor : model->DescribeState()) {
      const at::Tensor whole = reference->named_parameters()[tensor.name];
      EXPECT_EQ(whole.sizes().vec(), tensor.global_shape);
      EXPECT_TRUE(at::equal(tensor.local.detach(), whole.detach().flatten().narrow(
                                                       0, tensor.offset, tensor.local.numel())))
          << tensor.name;
    }
  });
}

TEST(FsdpWrapperTest, RanksWithDifferentModulesOrOptionsAreToldWhatDiffers) {
  const auto errors = RunRanksThatMayFail(
      2, [](ProcessGroup& group) { FSDPWrapper model(torch::nn::Linear(3, group.rank() + 2)); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("weight"), HasSubstr("[2, 3]"), HasSubstr("[3, 3]"))));
  const auto options = RunRanksThatMayFail(2, [](ProcessGroup& group) {
    FSDPOptions options;
    if (group.rank() == 1) options.unit_names = {"nowhere"};
    FSDPWrapper model(torch::nn::Linear(3, 2), options);
  });
  EXPECT_THAT(options, Each(AllOf(HasSubstr("rank 1"), HasSubstr("no module 'nowhere'"))));
}

TEST(FsdpWrapperTest, AModuleIsWrappedOnceAndParkedForeverWhenItsWrapperIsGone) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Linear linear(3, 2);
    {
      FSDPWrapper model(linear);
      EXPECT_THAT(ErrorOf([&] { FSDPWrapper second(linear); }),
                  HasSubstr("'weight' is sharded already"));
      model->forward(torch::ones({1, 3}));
    }
    EXPECT_THAT(ErrorOf([&] {
                  linear->forward(torch::ones({1, 3}));
                }),
                HasSubstr("after its FSDPWrapper was destroyed"));
  });
}

TEST(FsdpWrapperTest, SeveralModelsTrainInOneProcessAndOneGraph) {
  RunRanks(2, [](ProcessGroup& group) {
    auto encoder = Seeded<Mlp>();
    torch::nn::Linear head(1, 1);
    head->to(at::kDouble);
    FSDPWrapper<Model> first(encoder, EveryModuleAUnit());
    FSDPWrapper second(head, EveryModuleAUnit());
    for (int step = 0; step < 3; ++step) {
      second->forward(first->forward(Input(group.rank()))).sum().backward();
    }
    for (const at::Tensor& slice : first->parameters()) EXPECT_TRUE(slice.grad().defined());
    for (const at::Tensor& slice : second->parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

TEST(FsdpWrapperTest, WhatItCannotDoIsRefused) {
  RunRanks(2, [](ProcessGroup&) {
    torch::nn::Embedding sparse(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    FSDPWrapper embedding(sparse);
    EXPECT_THAT(ErrorOf([&] { embedding->forward(torch::zeros({2}, at::kLong)).sum().backward(); }),
                AllOf(HasSubstr("'weight' is sparse"), HasSubstr("sparse(true)")));
    EXPECT_FALSE(sparse->weight.grad().defined());
    FSDPWrapper linear(torch::nn::Linear(2, 2));
    EXPECT_THAT(ErrorOf([&] {
                  linear->forward(torch::ones({1, 2})).sum().backward({}, std::nullopt, true);
                }),
                HasSubstr("create_graph"));
  });
}

}  // namespace
}  // namespace medfusion::testing
