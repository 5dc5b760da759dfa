#include "medfusion/models/fusion_classifier.h"

#include <ATen/ops/stack.h>

namespace medfusion {

FusionClassifierImpl::FusionClassifierImpl(const FusionClassifierOptions& options)
    : options_(options) {
  const int64_t width = options_.encoder.embedding_dim;
  encoders_ = register_module("encoders", GroupEncoders(options_.groups, options_.encoder));
  fusion_ = register_module("fusion",
                            GatedAttentionFusion(GatedAttentionFusionOptions{
                                .embedding_dim = width, .attention_dim = options_.attention_dim}));
  head_ = register_module("head", ClassificationHead(ClassificationHeadOptions{
                                      .in_features = width,
                                      .num_classes = options_.num_classes,
                                      .hidden = options_.head_hidden,
                                      .activation = options_.encoder.activation,
                                      .dropout = options_.head_dropout}));
}

FusionOutput FusionClassifierImpl::Fuse(const at::Tensor& features, const at::Tensor& present) {
  return fusion_->forward(at::stack(encoders_->forward(features, present), 1), present);
}

at::Tensor FusionClassifierImpl::forward(const at::Tensor& features, const at::Tensor& present) {
  return head_->forward(Fuse(features, present).embedding);
}

}  // namespace medfusion
