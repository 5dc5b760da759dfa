#include "tests/models/gradients.h"

#include <gtest/gtest.h>

#include <cmath>

namespace medfusion {

void ExpectGradients(torch::nn::Module& module, std::vector<at::Tensor> inputs,
                     const std::function<at::Tensor()>& loss) {
  for (at::Tensor& input : inputs) input.requires_grad_();
  for (const at::Tensor& parameter : module.parameters()) inputs.push_back(parameter);
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss()}, inputs);
  torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(inputs[i].scalar_type(), at::kDouble);
    ASSERT_TRUE(inputs[i].is_contiguous());
    const at::Tensor gradient = gradients[i].contiguous();
    double* const x = inputs[i].mutable_data_ptr<double>();
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double kept = x[j];
      x[j] = kept + kStep;
      const double above = loss().item<double>();
      x[j] = kept - kStep;
      const double below = loss().item<double>();
      x[j] = kept;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradient.const_data_ptr<double>()[j], expected, 1e-8 + 1e-6 * std::abs(expected))
          << "tensor " << i << ", element " << j;
    }
  }
}

}  // namespace medfusion
