#include "medfusion/data/tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <sstream>

namespace medfusion {

at::Tensor IndexTensor(std::span<const size_t> indices) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  std::copy(indices.begin(), indices.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream text;
  text << tensor.sizes() << ' ' << tensor.scalar_type() << ' ' << tensor.device();
  return text.str();
}

}  // namespace medfusion
