// An encoder for each group of a table's columns.
#ifndef MEDFUSION_MODELS_GROUP_ENCODERS_H_
#define MEDFUSION_MODELS_GROUP_ENCODERS_H_

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "medfusion/models/column_selector.h"
#include "medfusion/models/tabular_encoder.h"

namespace medfusion {

class GroupEncodersImpl : public torch::nn::Module {
 public:
  // One encoder a group, with the group's size as its in_features. Throws c10::Error when there are
  // no groups, one is empty, or `encoder` makes no encoder.
  GroupEncodersImpl(const std::vector<std::vector<int64_t>>& groups, TabularEncoderOptions encoder);

  // `features`: [N, F]; `present`: [N, G] bool, or undefined. Returns an embedding [N, D] a group.
  // An absent group is encoded as a row of zeros, so that NaN in it reaches no gradient. Throws
  // c10::Error for other shapes.
  std::vector<at::Tensor> forward(const at::Tensor& features, const at::Tensor& present = {});

  int64_t size() const { return static_cast<int64_t>(selectors_.size()); }

 private:
  std::vector<ColumnSelector> selectors_;
  std::vector<TabularEncoder> encoders_;
};
TORCH_MODULE(GroupEncoders);

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_GROUP_ENCODERS_H_
