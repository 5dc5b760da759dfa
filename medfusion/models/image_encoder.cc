#include "medfusion/models/image_encoder.h"

#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>

#include <string>

#include "medfusion/models/layers.h"
#include "medfusion/recompute/recompute.h"

namespace medfusion {

ImageEncoderImpl::ImageEncoderImpl(const ImageEncoderOptions& options) : options_(options) {
  CheckOption("ImageEncoder: in_channels", options_.in_channels);
  CheckOption("ImageEncoder: blocks_per_stage", options_.blocks_per_stage);
  CheckOption("ImageEncoder: embedding_dim", options_.embedding_dim);
  TORCH_CHECK(!options_.channels.empty(),
              "ImageEncoder: channels is empty; name one stage or more");
  for (const int64_t width : options_.channels) CheckOption("ImageEncoder: a stage's width", width);

  int64_t width = options_.channels.front();
  stem_ = register_module("stem", ConvNorm(options_.in_channels, width, 3, 1, options_.norm));
  for (size_t stage = 0; stage < options_.channels.size(); ++stage) {
    for (int64_t block = 0; block < options_.blocks_per_stage; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      blocks_.push_back(
          register_module("stage" + std::to_string(stage) + "_block" + std::to_string(block),
                          ResidualBlock(width, options_.channels[stage], stride, options_.norm)));
      width = options_.channels[stage];
    }
  }
  output_ = register_module("output", torch::nn::Linear(width, options_.embedding_dim));
}

at::Tensor ImageEncoderImpl::forward(const at::Tensor& images) {
  CheckSizes("ImageEncoder: images", images, {-1, options_.in_channels, -1, -1});
  at::Tensor x = at::relu(stem_->forward(images));
  for (ResidualBlock& block : blocks_) {
    if (options_.activation_checkpointing) {
      x = Recompute(RecomputeOptions{.preserve_rng_state = false}, &ResidualBlockImpl::forward,
                    block.ptr(), x);
    } else {
      x = block->forward(x);
    }
  }
  return output_->forward(x.mean({2, 3}));
}

}  // namespace medfusion
