#include "medfusion/models/residual_block.h"

#include <ATen/ops/relu.h>
#include <torch/nn/init.h>

#include <numeric>

namespace medfusion {

ConvNormImpl::ConvNormImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                           ImageNorm norm) {
  conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                                                        .stride(stride)
                                                        .padding(kernel / 2)
                                                        .bias(false)));
  torch::nn::init::kaiming_normal_(conv_->weight, 0, torch::kFanOut, torch::kReLU);
  if (norm == ImageNorm::kBatch) {
    batch_norm_ = register_module("norm", torch::nn::BatchNorm2d(out));
  } else {
    const int64_t groups = out / std::gcd(out, int64_t{8});
    group_norm_ =
        register_module("norm", torch::nn::GroupNorm(torch::nn::GroupNormOptions(groups, out)));
  }
}

at::Tensor ConvNormImpl::forward(const at::Tensor& x) {
  const at::Tensor y = conv_->forward(x);
  return batch_norm_ ? batch_norm_->forward(y) : group_norm_->forward(y);
}

ResidualBlockImpl::ResidualBlockImpl(int64_t in, int64_t out, int64_t stride, ImageNorm norm) {
  first_ = register_module("first", ConvNorm(in, out, 3, stride, norm));
  second_ = register_module("second", ConvNorm(out, out, 3, 1, norm));
  if (in != out || stride != 1) {
    shortcut_ = register_module("shortcut", ConvNorm(in, out, 1, stride, norm));
  }
}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor y = second_->forward(at::relu(first_->forward(x)));
  return at::relu(y.add(shortcut_ ? shortcut_->forward(x) : x));
}

}  // namespace medfusion
