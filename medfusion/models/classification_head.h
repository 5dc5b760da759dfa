// From an embedding to logits.
#ifndef MEDFUSION_MODELS_CLASSIFICATION_HEAD_H_
#define MEDFUSION_MODELS_CLASSIFICATION_HEAD_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "medfusion/models/layers.h"

namespace medfusion {

struct ClassificationHeadOptions {
  int64_t in_features = 0;  // required
  int64_t num_classes = 2;
  int64_t hidden = 0;  // width of a hidden layer; 0 means none
  Activation activation = Activation::kRelu;
  double dropout = 0;  // before each linear layer
};

// Dropout and Linear, after Linear and an activation when there is a hidden layer. Softmax is left
// to the loss.
class ClassificationHeadImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for a width below 1, fewer than two classes or a dropout outside [0, 1).
  explicit ClassificationHeadImpl(const ClassificationHeadOptions& options);

  // [N, in_features] to logits [N, num_classes]. Throws c10::Error for another shape.
  at::Tensor forward(const at::Tensor& x);

  const ClassificationHeadOptions& options() const { return options_; }

 private:
  ClassificationHeadOptions options_;
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(ClassificationHead);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_CLASSIFICATION_HEAD_H_
