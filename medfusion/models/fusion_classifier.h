// A classifier of tables: an encoder for each group of columns, gated attention over them, a head.
#ifndef MEDFUSION_MODELS_FUSION_CLASSIFIER_H_
#define MEDFUSION_MODELS_FUSION_CLASSIFIER_H_

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "medfusion/models/classification_head.h"
#include "medfusion/models/gated_attention_fusion.h"
#include "medfusion/models/group_encoders.h"

namespace medfusion {

struct FusionClassifierOptions {
  // The columns of each group, at least one each; see medfusion/data/feature_groups.h.
  std::vector<std::vector<int64_t>> groups;
  // For every group; in_features is set from the group's size.
  TabularEncoderOptions encoder;
  int64_t attention_dim = 16;
  int64_t num_classes = 2;
  int64_t head_hidden = 0;
  double head_dropout = 0;
};

// Works in the parameters' dtype, float64 after to(torch::kDouble) included.
class FusionClassifierImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for options that make no model.
  explicit FusionClassifierImpl(const FusionClassifierOptions& options);

  // `features`: [N, F], F larger than every column of the groups. `present`: [N, G] bool, which
  // groups a sample has, or undefined when nothing is missing; what an absent group's columns hold,
  // NaN included, does not matter. Returns logits [N, num_classes]. Throws c10::Error for other
  // shapes.
  at::Tensor forward(const at::Tensor& features, const at::Tensor& present = {});

  // The fused embedding [N, embedding_dim] and the groups' weights [N, G], to look into a decision.
  FusionOutput Fuse(const at::Tensor& features, const at::Tensor& present = {});

  const FusionClassifierOptions& options() const { return options_; }

 private:
  FusionClassifierOptions options_;
  GroupEncoders encoders_{nullptr};
  GatedAttentionFusion fusion_{nullptr};
  ClassificationHead head_{nullptr};
};
TORCH_MODULE(FusionClassifier);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_FUSION_CLASSIFIER_H_
