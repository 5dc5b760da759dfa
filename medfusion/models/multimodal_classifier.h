// A classifier of an image and a table together.
#ifndef MEDFUSION_MODELS_MULTIMODAL_CLASSIFIER_H_
#define MEDFUSION_MODELS_MULTIMODAL_CLASSIFIER_H_

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "medfusion/models/fusion_classifier.h"
#include "medfusion/models/image_encoder.h"

namespace medfusion {

struct MultimodalClassifierOptions {
  // embedding_dim is taken from table.encoder.
  ImageEncoderOptions image;
  FusionClassifierOptions table;
};

// FusionClassifier with the image as one more modality, the first: gated attention over 1 + G
// embeddings. Where all lack a modality, its encoder still runs, so that every rank of a
// distributed run uses the same parameters.
class MultimodalClassifierImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for options that make no model.
  explicit MultimodalClassifierImpl(const MultimodalClassifierOptions& options);

  // `images`: [N, C, H, W]; `features`: [N, F]; `present`: [N, 1 + G] bool, image first, or
  // undefined when nothing is missing. What an absent modality holds, NaN included, does not
  // matter, but with ImageNorm::kBatch absent images count as zeros in the batch's statistics.
  // Returns logits [N, num_classes]. Throws c10::Error for other shapes.
  at::Tensor forward(const at::Tensor& images, const at::Tensor& features,
                     const at::Tensor& present = {});

  // The fused embedding [N, D] and weights [N, 1 + G].
  FusionOutput Fuse(const at::Tensor& images, const at::Tensor& features,
                    const at::Tensor& present = {});

  const MultimodalClassifierOptions& options() const { return options_; }

 private:
  MultimodalClassifierOptions options_;
  ImageEncoder image_encoder_{nullptr};
  GroupEncoders encoders_{nullptr};
  GatedAttentionFusion fusion_{nullptr};
  ClassificationHead head_{nullptr};
};
TORCH_MODULE(MultimodalClassifier);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_MULTIMODAL_CLASSIFIER_H_
