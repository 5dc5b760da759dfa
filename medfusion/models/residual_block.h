// The parts of ImageEncoder.
#ifndef MEDFUSION_MODELS_RESIDUAL_BLOCK_H_
#define MEDFUSION_MODELS_RESIDUAL_BLOCK_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace medfusion {

// kGroup (groups of up to 8 channels) does not depend on the batch; for small batches a rank.
enum class ImageNorm { kBatch, kGroup };

// A convolution without bias that keeps H and W (divided by `stride`, rounded up), and its norm.
class ConvNormImpl : public torch::nn::Module {
 public:
  // `kernel` is odd.
  ConvNormImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride, ImageNorm norm);
  at::Tensor forward(const at::Tensor& x);  // [N, in, H, W] to [N, out, H / stride, W / stride]

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d batch_norm_{nullptr};
  torch::nn::GroupNorm group_norm_{nullptr};
};
TORCH_MODULE(ConvNorm);

// relu(shortcut(x) + second(relu(first(x)))), with 3x3 convolutions; the shortcut is x itself, or a
// 1x1 convolution where the shape changes.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(int64_t in, int64_t out, int64_t stride, ImageNorm norm);
  at::Tensor forward(const at::Tensor& x);  // as ConvNorm

 private:
  ConvNorm first_{nullptr};
  ConvNorm second_{nullptr};
  ConvNorm shortcut_{nullptr};
};
TORCH_MODULE(ResidualBlock);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_RESIDUAL_BLOCK_H_
