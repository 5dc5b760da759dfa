#include "medfusion/models/multimodal_classifier.h"

#include <ATen/ops/stack.h>

#include <vector>

namespace medfusion {

MultimodalClassifierImpl::MultimodalClassifierImpl(const MultimodalClassifierOptions& options)
    : options_(options) {
  const FusionClassifierOptions& table = options_.table;
  const int64_t width = table.encoder.embedding_dim;
  options_.image.embedding_dim = width;
  image_encoder_ = register_module("image_encoder", ImageEncoder(options_.image));
  encoders_ = register_module("encoders", GroupEncoders(table.groups, table.encoder));
  fusion_ =
      register_module("fusion", GatedAttentionFusion(GatedAttentionFusionOptions{
                                    .embedding_dim = width, .attention_dim = table.attention_dim}));
  head_ = register_module(
      "head", ClassificationHead(ClassificationHeadOptions{.in_features = width,
                                                           .num_classes = table.num_classes,
                                                           .hidden = table.head_hidden,
                                                           .activation = table.encoder.activation,
                                                           .dropout = table.head_dropout}));
}

FusionOutput MultimodalClassifierImpl::Fuse(const at::Tensor& images, const at::Tensor& features,
                                            const at::Tensor& present) {
  CheckSizes("MultimodalClassifier: images", images, {-1, options_.image.in_channels, -1, -1});
  CheckSizes("MultimodalClassifier: features", features, {images.size(0), -1});
  at::Tensor seen = images, present_groups;
  if (present.defined()) {
    CheckSizes("MultimodalClassifier: present", present, {images.size(0), 1 + encoders_->size()});
    const at::Tensor absent = present.narrow(1, 0, 1).logical_not();
    seen = images.masked_fill(absent.unsqueeze(2).unsqueeze(3), 0);
    present_groups = present.narrow(1, 1, encoders_->size());
  }
  std::vector<at::Tensor> embeddings = {image_encoder_->forward(seen)};
  for (at::Tensor& embedding : encoders_->forward(features, present_groups)) {
    embeddings.push_back(std::move(embedding));
  }
  return fusion_->forward(at::stack(embeddings, 1), present);
}

at::Tensor MultimodalClassifierImpl::forward(const at::Tensor& images, const at::Tensor& features,
                                             const at::Tensor& present) {
  return head_->forward(Fuse(images, features, present).embedding);
}

}  // namespace medfusion
