// Autograd against central differences.
#ifndef TESTS_MODELS_GRADIENTS_H_
#define TESTS_MODELS_GRADIENTS_H_

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace medfusion {

// Expects the gradient of the scalar `loss()` with respect to every element of the module's
// parameters and of `inputs` (leaves, which `loss` reads) to equal (f(x + h) - f(x - h)) / 2h with
// h = 1e-5, within 1e-8 + 1e-6 of its size. Everything is float64.
void ExpectGradients(torch::nn::Module& module, std::vector<at::Tensor> inputs,
                     const std::function<at::Tensor()>& loss);

}  // namespace medfusion

#endif  // TESTS_MODELS_GRADIENTS_H_
