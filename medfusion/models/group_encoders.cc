#include "medfusion/models/group_encoders.h"

#include <c10/util/Exception.h>

#include <string>

namespace medfusion {

GroupEncodersImpl::GroupEncodersImpl(const std::vector<std::vector<int64_t>>& groups,
                                     TabularEncoderOptions encoder) {
  TORCH_CHECK(!groups.empty(), "GroupEncoders: there are no groups of columns");
  for (const std::vector<int64_t>& columns : groups) {
    selectors_.emplace_back(columns);
    encoder.in_features = selectors_.back().size();
    encoders_.push_back(
        register_module("encoder" + std::to_string(encoders_.size()), TabularEncoder(encoder)));
  }
}

std::vector<at::Tensor> GroupEncodersImpl::forward(const at::Tensor& features,
                                                   const at::Tensor& present) {
  CheckSizes("GroupEncoders: features", features, {-1, -1});
  if (present.defined()) CheckSizes("GroupEncoders: present", present, {features.size(0), size()});
  std::vector<at::Tensor> embeddings;
  for (size_t i = 0; i < selectors_.size(); ++i) {
    at::Tensor group = selectors_[i].Select(features);
    if (present.defined()) {
      group = group.masked_fill(present.narrow(1, static_cast<int64_t>(i), 1).logical_not(), 0);
    }
    embeddings.push_back(encoders_[i]->forward(group));
  }
  return embeddings;
}

}  // namespace medfusion
