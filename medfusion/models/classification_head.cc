#include "medfusion/models/classification_head.h"

#include <ATen/ops/dropout.h>

namespace medfusion {

ClassificationHeadImpl::ClassificationHeadImpl(const ClassificationHeadOptions& options)
    : options_(options) {
  CheckOption("ClassificationHead: in_features", options_.in_features);
  CheckOption("ClassificationHead: num_classes", options_.num_classes, 2);
  CheckOption("ClassificationHead: hidden", options_.hidden, 0);
  CheckDropout("ClassificationHead: dropout", options_.dropout);
  int64_t width = options_.in_features;
  if (options_.hidden > 0) {
    hidden_ = register_module("hidden", torch::nn::Linear(width, options_.hidden));
    width = options_.hidden;
  }
  output_ = register_module("output", torch::nn::Linear(width, options_.num_classes));
}

at::Tensor ClassificationHeadImpl::forward(const at::Tensor& input) {
  CheckSizes("ClassificationHead: the input", input, {-1, options_.in_features});
  at::Tensor x = input;
  const auto drop = [&] {
    if (options_.dropout > 0) x = at::dropout(x, options_.dropout, is_training());
  };
  drop();
  if (hidden_) {
    x = Activate(options_.activation, hidden_->forward(x));
    drop();
  }
  return output_->forward(x);
}

}  // namespace medfusion
