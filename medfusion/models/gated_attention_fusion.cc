#include "medfusion/models/gated_attention_fusion.h"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <c10/util/Exception.h>

#include "medfusion/models/layers.h"

namespace medfusion {

GatedAttentionFusionImpl::GatedAttentionFusionImpl(const GatedAttentionFusionOptions& options)
    : options_(options) {
  CheckOption("GatedAttentionFusion: embedding_dim", options_.embedding_dim);
  CheckOption("GatedAttentionFusion: attention_dim", options_.attention_dim);
  const int64_t in = options_.embedding_dim, out = options_.attention_dim;
  value_ = register_module("value", torch::nn::Linear(in, out));
  gate_ = register_module("gate", torch::nn::Linear(in, out));
  score_ =
      register_module("score", torch::nn::Linear(torch::nn::LinearOptions(out, 1).bias(false)));
}

FusionOutput GatedAttentionFusionImpl::forward(const at::Tensor& embeddings,
                                               const at::Tensor& present) {
  CheckSizes("GatedAttentionFusion: embeddings", embeddings, {-1, -1, options_.embedding_dim});
  at::Tensor known = embeddings;
  if (present.defined()) {
    CheckSizes("GatedAttentionFusion: present", present, {embeddings.size(0), embeddings.size(1)});
    TORCH_CHECK(present.scalar_type() == at::kBool, "GatedAttentionFusion: present is ",
                present.scalar_type(), "; expected Bool");
    // Not a multiplication by 0: NaN * 0 is NaN.
    known = embeddings.masked_fill(present.logical_not().unsqueeze(2), 0);
  }
  const at::Tensor gated = at::tanh(value_->forward(known)).mul(at::sigmoid(gate_->forward(known)));
  at::Tensor scores = score_->forward(gated).squeeze(2);
  if (present.defined()) {
    // Lower than any score and finite: a row of -inf would make NaN of the softmax.
    const double lowest = scores.scalar_type() == at::kHalf ? -6e4 : -1e38;
    scores = scores.masked_fill(present.logical_not(), lowest);
  }
  at::Tensor weights = at::softmax(scores, 1);
  if (present.defined()) weights = weights.mul(present);
  return {weights.unsqueeze(2).mul(known).sum(1), weights};
}

}  // namespace medfusion
