// One embedding out of several modalities' embeddings, weighted by what they hold.
#ifndef MEDFUSION_MODELS_GATED_ATTENTION_FUSION_H_
#define MEDFUSION_MODELS_GATED_ATTENTION_FUSION_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace medfusion {

struct GatedAttentionFusionOptions {
  int64_t embedding_dim = 0;   // D, required
  int64_t attention_dim = 16;  // A
};

struct FusionOutput {
  at::Tensor embedding;  // [N, D]
  at::Tensor weights;    // [N, M], rows sum to 1
};

// Gated attention (Ilse, Tomczak and Welling 2018, "Attention-based Deep Multiple Instance
// Learning", equation 9), over the M modalities h_1 .. h_M of a sample:
//
//   s_m = w . (tanh(V h_m + b) * sigmoid(U h_m + c)),   V, U: [A, D], w: [A]
//   weights = softmax(s_1 .. s_M),   embedding = sum of weights_m h_m
//
// The gate (sigmoid) plays the part it has in the gated multimodal unit (Arevalo et al. 2017). V, U
// and w are shared, so the order of the modalities only permutes the weights; encoders of their own
// make the modalities differ.
//
// `present` marks the modalities that a sample has. An absent one gets weight 0 and no gradient,
// whatever its embedding holds, NaN included. A sample without any gets the embedding 0 and weights
// 0.
class GatedAttentionFusionImpl : public torch::nn::Module {
 public:
  // Throws c10::Error for a dimension below 1.
  explicit GatedAttentionFusionImpl(const GatedAttentionFusionOptions& options);

  // `embeddings`: [N, M, D]; `present`: [N, M] bool, or undefined when nothing is missing. Throws
  // c10::Error for other shapes.
  FusionOutput forward(const at::Tensor& embeddings, const at::Tensor& present = {});

  const GatedAttentionFusionOptions& options() const { return options_; }

 private:
  GatedAttentionFusionOptions options_;
  torch::nn::Linear value_{nullptr};  // V, b
  torch::nn::Linear gate_{nullptr};   // U, c
  torch::nn::Linear score_{nullptr};  // w; a bias would cancel in the softmax
};
TORCH_MODULE(GatedAttentionFusion);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_GATED_ATTENTION_FUSION_H_
