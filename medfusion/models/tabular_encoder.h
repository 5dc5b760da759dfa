// From a row of numbers to an embedding.
#ifndef MEDFUSION_MODELS_TABULAR_ENCODER_H_
#define MEDFUSION_MODELS_TABULAR_ENCODER_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "medfusion/models/layers.h"

namespace medfusion {

struct TabularEncoderOptions {
  int64_t in_features = 0;             // required
  std::vector<int64_t> hidden = {32};  // widths of the hidden layers; may be empty
  int64_t embedding_dim = 16;
  Norm norm = Norm::kLayer;
  Activation activation = Activation::kRelu;
  double dropout = 0;
  // Backward computes the hidden layers again instead of keeping them: docs/recompute.md.
  bool activation_checkpointing = false;
};

// A multilayer perceptron: for each hidden width Linear, norm, activation, dropout; then a Linear
// to the embedding, without an activation. LibTorch's default initial values, drawn from its
// default generator: torch::manual_seed makes them reproducible.
class TabularEncoderImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for a width below 1 or a dropout outside [0, 1).
  explicit TabularEncoderImpl(const TabularEncoderOptions& options);

  // [N, in_features] to [N, embedding_dim], in the parameters' dtype. Throws c10::Error for another
  // shape.
  at::Tensor forward(const at::Tensor& x);

  const TabularEncoderOptions& options() const { return options_; }

 private:
  struct Layer {
    torch::nn::Linear linear{nullptr};
    torch::nn::LayerNorm layer_norm{nullptr};
    torch::nn::BatchNorm1d batch_norm{nullptr};

    at::Tensor Forward(at::Tensor x, const TabularEncoderOptions& options, bool training);
  };

  TabularEncoderOptions options_;
  std::vector<Layer> layers_;
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(TabularEncoder);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_TABULAR_ENCODER_H_
