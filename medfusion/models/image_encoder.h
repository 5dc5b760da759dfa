// From an image to an embedding.
#ifndef MEDFUSION_MODELS_IMAGE_ENCODER_H_
#define MEDFUSION_MODELS_IMAGE_ENCODER_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "medfusion/models/residual_block.h"

namespace medfusion {

struct ImageEncoderOptions {
  int64_t in_channels = 1;
  std::vector<int64_t> channels = {16, 32, 64};  // one stage each; all but the first halve H and W
  int64_t blocks_per_stage = 1;
  int64_t embedding_dim = 16;
  ImageNorm norm = ImageNorm::kBatch;
  // Backward computes the blocks again instead of keeping them: docs/recompute.md. kBatch then
  // moves its running statistics twice a step.
  bool activation_checkpointing = false;
};

// A small residual network (He et al. 2015, "Deep Residual Learning for Image Recognition"): a 3x3
// convolution, stages of residual blocks, the average over the image, a Linear. Convolutions start
// from He's normal values (fan out), drawn from LibTorch's default generator.
class ImageEncoderImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for a size below 1 or no stages.
  explicit ImageEncoderImpl(const ImageEncoderOptions& options);

  // [N, in_channels, H, W], any H and W of at least 1, to [N, embedding_dim]. Throws c10::Error for
  // another shape.
  at::Tensor forward(const at::Tensor& images);

  const ImageEncoderOptions& options() const { return options_; }

 private:
  ImageEncoderOptions options_;
  ConvNorm stem_{nullptr};
  std::vector<ResidualBlock> blocks_;
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(ImageEncoder);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_IMAGE_ENCODER_H_
