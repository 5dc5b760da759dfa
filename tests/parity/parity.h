// N ranks must train like one rank on the joined batch: the job, the one rank and the comparison.
#ifndef MEDFUSION_TESTS_PARITY_PARITY_H_
#define MEDFUSION_TESTS_PARITY_PARITY_H_

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace medfusion::testing {

constexpr int kSteps = 20;
constexpr int kBatch = 12;  // joined; divides by 1, 2, 3 and 4
constexpr int kFeatures = 6;

class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor x) = 0;
};

struct Job {
  std::string name;
  std::function<std::shared_ptr<Model>()> make;
  bool adamw = false;
  int accumulate = 1;
  double clip_norm = 0;
  bool set_to_none = true;
  // Rank r gets the rows bounds[r]..bounds[r+1] of every batch, here of 4 ranks at most; equal
  // parts when empty.
  std::vector<int> bounds;
};

struct Result {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
};

struct Data {
  at::Tensor x;  // [steps, accumulate, batch, features]
  at::Tensor y;  // [steps, accumulate, batch, 1]
};

inline Data MakeData(const Job& job, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(7);
  Data data;
  data.x = at::randn({kSteps, job.accumulate, kBatch, kFeatures}, generator,
                     at::TensorOptions(at::kDouble));
  data.y = data.x.sum(-1, true).sin().to(dtype);
  data.x = data.x.to(dtype);
  return data;
}

inline std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    const Job& job, const std::vector<at::Tensor>& parameters) {
  if (job.adamw) {
    return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
  }
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

// Each distinct tensor once.
inline std::vector<at::Tensor> Distinct(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> distinct;
  for (const at::Tensor& tensor : tensors) {
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](const at::Tensor& other) { return other.is_same(tensor); })) {
      distinct.push_back(tensor);
    }
  }
  return distinct;
}

// Trains on the rows begin..end of each batch. `scale` turns the sum of this rank's squared errors
// into a loss whose average over the ranks is the joined batch's mean. `backward(loss, last)` calls
// backward.
template <typename Forward, typename Backward>
Result Train(const Job& job, const Data& data, torch::nn::Module& module,
             const std::vector<at::Tensor>& parameters, int begin, int end, double scale,
             Forward&& forward, Backward&& backward) {
  const auto optimizer = MakeOptimizer(job, parameters);
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad(job.set_to_none);
    double loss_sum = 0;
    for (int part = 0; part < job.accumulate; ++part) {
      const at::Tensor x = data.x[step][part].slice(0, begin, end);
      const at::Tensor y = data.y[step][part].slice(0, begin, end);
      const bool last = part + 1 == job.accumulate;
      at::Tensor loss;
      backward(last, [&] {
        loss = (forward(x) - y).square().sum() * (scale / (kBatch * job.accumulate));
        loss.backward();
      });
      loss_sum += loss.item<double>();
    }
    if (job.clip_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, job.clip_norm);
    optimizer->step();
    result.losses.push_back(loss_sum);
  }
  for (const at::Tensor& parameter : parameters) {
    result.parameters.push_back(parameter.detach().clone());
  }
  for (const at::Tensor& buffer : module.buffers()) result.buffers.push_back(buffer.clone());
  return result;
}

inline std::shared_ptr<Model> MakeSeeded(const Job& job, at::ScalarType dtype) {
  torch::manual_seed(3);
  auto model = job.make();
  model->to(dtype);
  return model;
}

inline Result TrainAlone(const Job& job, const Data& data, at::ScalarType dtype) {
  const auto model = MakeSeeded(job, dtype);
  return Train(
      job, data, *model, Distinct(model->parameters()), 0, kBatch, 1.0,
      [&](const at::Tensor& x) { return model->forward(x); }, [](bool, const auto& run) { run(); });
}

inline double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

inline void ExpectBitwiseEqual(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

// `ranks[r]` against one rank alone: losses and parameters within the tolerances, relative to the
// largest.
inline void ExpectParity(const Result& alone, const std::vector<Result>& ranks,
                         double loss_tolerance, double tolerance) {
  for (int step = 0; step < kSteps; ++step) {
    double loss = 0;
    for (const Result& rank : ranks) loss += rank.losses[step] / static_cast<double>(ranks.size());
    EXPECT_NEAR(loss, alone.losses[step],
                loss_tolerance * *std::max_element(alone.losses.begin(), alone.losses.end()))
        << "step " << step;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    ExpectBitwiseEqual(ranks[r].parameters, ranks[0].parameters);
  }
  double largest = 0;
  for (const at::Tensor& p : alone.parameters) {
    if (p.numel() > 0) largest = std::max(largest, p.abs().max().item<double>());
  }
  ASSERT_EQ(ranks[0].parameters.size(), alone.parameters.size());
  for (size_t i = 0; i < alone.parameters.size(); ++i) {
    EXPECT_LE(LargestDifference(ranks[0].parameters[i], alone.parameters[i]), tolerance * largest)
        << "parameter " << i;
  }
  for (size_t i = 0; i < alone.buffers.size(); ++i) {
    EXPECT_LE(LargestDifference(ranks[0].buffers[i], alone.buffers[i]), tolerance * 10)
        << "buffer " << i;
  }
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_PARITY_PARITY_H_
