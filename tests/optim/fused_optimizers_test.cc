// The fused optimizers against torch::optim: same steps, same state.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/optim/optim.h"

namespace medfusion::testing {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

// Sizes on both sides of a vector register's.
std::vector<at::Tensor> MakeParameters(at::ScalarType dtype) {
  torch::manual_seed(7);
  std::vector<at::Tensor> parameters;
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{33, 17}, {5}, {}, {0}, {4, 3, 2, 2}}) {
    parameters.push_back(torch::randn(sizes, dtype).set_requires_grad(true));
  }
  parameters.push_back(torch::randn({2, 8, 3, 3}, dtype)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .set_requires_grad(true));
  return parameters;
}

// Two groups, of which the second has options of its own.
template <typename Opt, typename Options>
std::unique_ptr<Optimizer> MakeOptimizer(const std::vector<at::Tensor>& parameters,
                                         const Options& first, const Options& second) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 3),
                      std::make_unique<Options>(first));
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin() + 3, parameters.end()),
                      std::make_unique<Options>(second));
  return std::make_unique<Opt>(std::move(groups), first);
}

void SetGradients(const std::vector<at::Tensor>& parameters, int step) {
  torch::manual_seed(100 + step);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor gradient = torch::randn(parameters[i].sizes(), parameters[i].scalar_type());
    if (i == 1 && step < 2) continue;       // appears later
    if (i == 4 && step % 3 == 1) continue;  // misses steps
    parameters[i].mutable_grad() = gradient.clone();
  }
}

void ExpectSame(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(at::allclose(actual[i], expected[i], tolerance, tolerance))
        << "parameter " << i << " differs by "
        << (actual[i] - expected[i]).abs().max().item<double>();
  }
}

template <typename Options>
void SetLr(Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) static_cast<Options&>(group.options()).lr(lr);
}

// 20 steps with a learning rate that changes, of the two classes side by side.
template <typename Fused, typename Reference, typename Options>
void ExpectParity(const Options& first, const Options& second, at::ScalarType dtype,
                  double tolerance) {
  const std::vector<at::Tensor> actual = MakeParameters(dtype);
  const std::vector<at::Tensor> expected = MakeParameters(dtype);
  const std::vector<at::Tensor> initial = MakeParameters(dtype);
  auto fused = MakeOptimizer<Fused>(actual, first, second);
  auto reference = MakeOptimizer<Reference>(expected, first, second);
  for (int step = 0; step < 20; ++step) {
    if (step % 5 == 4) {
      SetLr<Options>(*fused, 0.02 / (step + 1));
      SetLr<Options>(*reference, 0.02 / (step + 1));
    }
    fused->zero_grad(/*set_to_none=*/step % 2 == 0);
    reference->zero_grad(/*set_to_none=*/step % 2 == 0);
    SetGradients(actual, step);
    SetGradients(expected, step);
    fused->step();
    reference->step();
  }
  ExpectSame(actual, expected, tolerance);
  EXPECT_FALSE(at::allclose(actual[0], initial[0], 1e-3, 1e-3));
}

struct Precision {
  at::ScalarType dtype;
  double tolerance;
};
const Precision kPrecisions[] = {{at::kDouble, 1e-13}, {at::kFloat, 2e-6}};

TEST(FusedAdamWTest, EqualsAdamW) {
  for (const auto& [dtype, tolerance] : kPrecisions) {
    for (const bool amsgrad : {false, true}) {
      SCOPED_TRACE(::testing::Message() << dtype << " amsgrad " << amsgrad);
      ExpectParity<FusedAdamW, torch::optim::AdamW>(
          AdamWOptions(0.01).weight_decay(0.1).amsgrad(amsgrad),
          AdamWOptions(0.02).weight_decay(0).betas({0.8, 0.95}).eps(1e-6), dtype, tolerance);
    }
  }
}

TEST(FusedAdamTest, EqualsAdam) {
  for (const auto& [dtype, tolerance] : kPrecisions) {
    for (const bool amsgrad : {false, true}) {
      SCOPED_TRACE(::testing::Message() << dtype << " amsgrad " << amsgrad);
      ExpectParity<FusedAdam, torch::optim::Adam>(
          AdamOptions(0.01).weight_decay(0.1).amsgrad(amsgrad),
          AdamOptions(0.02).weight_decay(0).betas({0.8, 0.95}).eps(1e-6), dtype, tolerance);
    }
  }
}

TEST(FusedSgdTest, EqualsSgd) {
  for (const auto& [dtype, tolerance] : kPrecisions) {
    SCOPED_TRACE(dtype);
    ExpectParity<FusedSGD, torch::optim::SGD>(SGDOptions(0.1), SGDOptions(0.2).weight_decay(0.1),
                                              dtype, tolerance);
    ExpectParity<FusedSGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01),
                                              SGDOptions(0.2).momentum(0.5).dampening(0.3), dtype,
                                              tolerance);
    ExpectParity<FusedSGD, torch::optim::SGD>(
        SGDOptions(0.1).momentum(0.9).nesterov(true),
        SGDOptions(0.05).momentum(0.7).nesterov(true).weight_decay(0.1), dtype, tolerance);
  }
}

TEST(FusedOptimizersTest, SixteenBitParametersMoveAsWithLibTorch) {
  // LibTorch rounds after each operation, the fused kernels once.
  for (const auto& [dtype, tolerance] :
       {Precision{at::kBFloat16, 0.1}, Precision{at::kHalf, 0.1}}) {
    SCOPED_TRACE(dtype);
    // An epsilon that float16 can hold.
    ExpectParity<FusedAdamW, torch::optim::AdamW>(AdamWOptions(0.01).eps(1e-3),
                                                  AdamWOptions(0.02).eps(1e-3), dtype, tolerance);
    ExpectParity<FusedSGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9), SGDOptions(0.1), dtype,
                                              tolerance);
  }
}

// Parameters and gradients side by side in one tensor each, as FSDP has them.
std::vector<at::Tensor> MakeNeighbours(const at::Tensor& flat, const at::Tensor& flat_gradient) {
  std::vector<at::Tensor> parameters;
  int64_t offset = 0;
  for (const int64_t numel : {5, 0, 16, 1, 42}) {
    at::Tensor parameter = at::empty({0});
    parameter.set_(flat.storage(), offset, {numel}, {1});
    at::Tensor gradient = at::empty({0});
    gradient.set_(flat_gradient.storage(), offset, {numel}, {1});
    parameter.set_requires_grad(true).mutable_grad() = gradient;
    parameters.push_back(parameter);
    offset += numel;
  }
  return parameters;
}

std::vector<at::Tensor> Apart(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) {
    result.push_back(parameter.detach().clone().set_requires_grad(true));
  }
  return result;
}

template <typename Fused, typename Options>
void ExpectNeighboursLikeOthers(const Options& options) {
  const at::Tensor flat = torch::randn({64});
  const at::Tensor flat_gradient = torch::zeros({64});
  const auto together = MakeNeighbours(flat, flat_gradient);
  const auto apart = Apart(together);
  Fused fused(together, options);
  Fused reference(apart, options);
  for (int step = 0; step < 8; ++step) {
    flat_gradient.copy_(torch::randn({64}));
    for (size_t i = 0; i < apart.size(); ++i) {
      apart[i].mutable_grad() = together[i].grad().clone();
    }
    // The row is broken for a step, then one parameter is a step behind.
    at::Tensor withheld;
    if (step == 3) {
      withheld = together[2].grad();
      together[2].mutable_grad() = at::Tensor();
      apart[2].mutable_grad() = at::Tensor();
    }
    fused.step();
    reference.step();
    if (withheld.defined()) together[2].mutable_grad() = withheld;
  }
  ExpectSame(together, apart, 1e-6);
}

TEST(FusedOptimizersTest, NeighboursInMemoryTrainAsIfTheyWereApart) {
  ExpectNeighboursLikeOthers<FusedAdamW>(AdamWOptions(0.01).amsgrad(true));
  ExpectNeighboursLikeOthers<FusedAdam>(AdamOptions(0.01));
  ExpectNeighboursLikeOthers<FusedSGD>(SGDOptions(0.1).momentum(0.9));
}

TEST(FusedOptimizersTest, AStepOfNeighboursIsSeenByAutograd) {
  const at::Tensor flat = torch::randn({64});
  const auto parameters = MakeNeighbours(flat, torch::ones({64}));
  FusedAdamW optimizer(parameters, AdamWOptions(0.01));
  for (const size_t i : {0, 2, 4}) {
    const at::Tensor loss = (parameters[i] * parameters[i]).sum();  // saves the parameter
    optimizer.step();
    EXPECT_THROW(loss.backward(), c10::Error) << "parameter " << i;
  }
}

std::string Saved(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void Load(const std::string& bytes, Optimizer& optimizer) {
  std::istringstream in(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  optimizer.load(archive);
}

// Runs `First` for three steps and goes on with `Second`.
template <typename First, typename Second, typename Options>
std::vector<at::Tensor> TrainAndSwitch(const Options& options) {
  const auto parameters = MakeParameters(at::kFloat);
  auto first = MakeOptimizer<First>(parameters, options, options);
  for (int step = 0; step < 3; ++step) {
    SetGradients(parameters, step);
    first->step();
  }
  auto second = MakeOptimizer<Second>(parameters, options, options);
  SetLr<Options>(*second, 77);  // the loaded one is to replace it
  Load(Saved(*first), *second);
  for (int step = 3; step < 6; ++step) {
    SetGradients(parameters, step);
    second->step();
  }
  return parameters;
}

TEST(FusedOptimizersTest, EachClassLoadsWhatTheOtherSaved) {
  using torch::optim::Adam;
  using torch::optim::AdamW;
  using torch::optim::SGD;
  const auto adamw = AdamWOptions(0.01).amsgrad(true);
  const auto expected = TrainAndSwitch<AdamW, AdamW>(adamw);
  ExpectSame(TrainAndSwitch<AdamW, FusedAdamW>(adamw), expected, 1e-6);
  ExpectSame(TrainAndSwitch<FusedAdamW, AdamW>(adamw), expected, 1e-6);
  ExpectSame(TrainAndSwitch<FusedAdamW, FusedAdamW>(adamw), expected, 1e-6);
  const auto adam = AdamOptions(0.01);
  ExpectSame(TrainAndSwitch<FusedAdam, Adam>(adam), TrainAndSwitch<Adam, FusedAdam>(adam), 1e-6);
  const auto sgd = SGDOptions(0.1).momentum(0.9);
  ExpectSame(TrainAndSwitch<FusedSGD, SGD>(sgd), TrainAndSwitch<SGD, FusedSGD>(sgd), 1e-6);
}

TEST(FusedOptimizersTest, NeighboursGoOnBitForBitFromSavedStateOfNoMoreThanItsSize) {
  const at::Tensor flat_gradient = torch::randn({64});
  const at::Tensor flat = torch::randn({64});
  const auto parameters = MakeNeighbours(flat, flat_gradient);
  FusedAdamW first(parameters, AdamWOptions(0.01));
  first.step();
  const std::string bytes = Saved(first);

  const at::Tensor flat_copy = flat.clone();
  const auto copies = MakeNeighbours(flat_copy, flat_gradient);
  FusedAdamW second(copies, AdamWOptions(0.01));
  Load(bytes, second);
  first.step();
  second.step();
  EXPECT_TRUE(at::equal(flat, flat_copy));

  FusedAdamW apart(Apart(parameters), AdamWOptions(0.01));
  const std::vector<at::Tensor>& others = apart.param_groups()[0].params();
  for (size_t i = 0; i < parameters.size(); ++i) {
    others[i].mutable_grad() = parameters[i].grad().clone();
  }
  apart.step();
  EXPECT_LE(bytes.size(), Saved(apart).size());
}

template <typename Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// A second group whose second parameter has a gradient that cannot be used.
TEST(FusedOptimizersTest, WhatCannotBeUpdatedIsNamedAndNothingMoves) {
  const auto good = torch::ones({3}).set_requires_grad(true);
  good.mutable_grad() = torch::ones({3});
  const auto bad = torch::ones({2, 3}).set_requires_grad(true);
  bad.mutable_grad() = torch::ones({2, 3}).to_sparse();
  std::vector<OptimizerParamGroup> groups = {OptimizerParamGroup({good}),
                                             OptimizerParamGroup({torch::ones({2}), bad})};
  FusedAdamW adamw(groups, AdamWOptions(0.1));
  const std::string sparse = ErrorOf([&] { adamw.step(); });
  EXPECT_NE(sparse.find("parameter 1 of group 1"), std::string::npos) << sparse;
  EXPECT_NE(sparse.find("sparse"), std::string::npos) << sparse;
  FusedSGD momentum(groups, SGDOptions(0.1).momentum(0.9));
  EXPECT_NE(ErrorOf([&] { momentum.step(); }).find("parameter 1 of group 1"), std::string::npos);
  EXPECT_TRUE(at::equal(good, torch::ones({3})));
  EXPECT_TRUE(adamw.state().empty());

  const auto complex = torch::ones({2}, at::kComplexFloat).set_requires_grad(true);
  complex.mutable_grad() = torch::ones({2}, at::kComplexFloat);
  FusedAdam adam({complex}, AdamOptions(0.1));
  EXPECT_NE(ErrorOf([&] { adam.step(); }).find("dtype"), std::string::npos);

  const auto gapped = torch::ones({4, 4}).slice(1, 0, 2).detach().set_requires_grad(true);
  gapped.mutable_grad() = torch::ones({4, 2});
  FusedAdam gaps({gapped}, AdamOptions(0.1));
  EXPECT_NE(ErrorOf([&] { gaps.step(); }).find("gaps"), std::string::npos);
}

TEST(FusedOptimizersTest, StateOfAnotherShapeIsRefused) {
  const auto parameter = torch::ones({3}).set_requires_grad(true);
  parameter.mutable_grad() = torch::ones({3});
  FusedAdamW saved({parameter}, AdamWOptions(0.1));
  saved.step();
  const auto other = torch::ones({4}).set_requires_grad(true);
  other.mutable_grad() = torch::ones({4});
  FusedAdamW optimizer({other}, AdamWOptions(0.1));
  Load(Saved(saved), optimizer);
  EXPECT_NE(ErrorOf([&] { optimizer.step(); }).find("parameter 0 of group 0"), std::string::npos);
  EXPECT_TRUE(at::equal(other, torch::ones({4})));
}

TEST(FusedSgdTest, TakesSparseGradientsWithoutMomentum) {
  const auto parameter = torch::ones({3, 2}).set_requires_grad(true);
  parameter.mutable_grad() = torch::eye(3).slice(1, 0, 2).to_sparse();
  FusedSGD optimizer({parameter}, SGDOptions(0.25));
  optimizer.step();
  EXPECT_TRUE(at::equal(parameter, 1 - 0.25 * torch::eye(3).slice(1, 0, 2)));
}

TEST(FusedOptimizersTest, SchedulersAndClosuresWork) {
  const auto parameter = torch::ones({3}).set_requires_grad(true);
  FusedSGD optimizer({parameter}, SGDOptions(0.5));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  const auto closure = [&] {
    optimizer.zero_grad();
    at::Tensor loss = parameter.sum();
    loss.backward();
    return loss;
  };
  EXPECT_EQ(optimizer.step(closure).item<float>(), 3);
  scheduler.step();  // LibTorch's first call changes nothing
  scheduler.step();
  EXPECT_EQ(optimizer.step(closure).item<float>(), 1.5);
  EXPECT_TRUE(at::equal(parameter, torch::full({3}, 0.25)));
}

}  // namespace
}  // namespace medfusion::testing
