#include "medfusion/models/tabular_encoder.h"

#include <ATen/ops/dropout.h>

#include <string>

#include "medfusion/recompute/recompute.h"

namespace medfusion {

TabularEncoderImpl::TabularEncoderImpl(const TabularEncoderOptions& options) : options_(options) {
  CheckOption("TabularEncoder: in_features", options_.in_features);
  CheckOption("TabularEncoder: embedding_dim", options_.embedding_dim);
  CheckDropout("TabularEncoder: dropout", options_.dropout);
  int64_t width = options_.in_features;
  for (const int64_t next : options_.hidden) {
    CheckOption("TabularEncoder: a hidden width", next);
    const std::string number = std::to_string(layers_.size());
    Layer layer;
    layer.linear = register_module("linear" + number, torch::nn::Linear(width, next));
    if (options_.norm == Norm::kLayer) {
      layer.layer_norm = register_module("norm" + number,
                                         torch::nn::LayerNorm(torch::nn::LayerNormOptions({next})));
    } else if (options_.norm == Norm::kBatch) {
      layer.batch_norm = register_module("norm" + number, torch::nn::BatchNorm1d(next));
    }
    layers_.push_back(layer);
    width = next;
  }
  output_ = register_module("output", torch::nn::Linear(width, options_.embedding_dim));
}

at::Tensor TabularEncoderImpl::forward(const at::Tensor& input) {
  CheckSizes("TabularEncoder: the input", input, {-1, options_.in_features});
  at::Tensor x = input;
  const bool training = is_training();
  for (Layer& layer : layers_) {
    if (options_.activation_checkpointing) {
      x = Recompute(RecomputeOptions{.preserve_rng_state = options_.dropout > 0}, &Layer::Forward,
                    layer, x, options_, training);
    } else {
      x = layer.Forward(x, options_, training);
    }
  }
  return output_->forward(x);
}

at::Tensor TabularEncoderImpl::Layer::Forward(at::Tensor x, const TabularEncoderOptions& options,
                                              bool training) {
  x = linear->forward(x);
  if (layer_norm) x = layer_norm->forward(x);
  if (batch_norm) x = batch_norm->forward(x);
  x = Activate(options.activation, x);
  return options.dropout > 0 ? at::dropout(x, options.dropout, training) : x;
}

}  // namespace medfusion
