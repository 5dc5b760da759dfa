// Small helpers for tensors of indices and for the error messages of this package.
#ifndef MEDFUSION_DATA_TENSORS_H_
#define MEDFUSION_DATA_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>

namespace medfusion {

// The indices as int64, [n], on the CPU.
at::Tensor IndexTensor(std::span<const size_t> indices);

// Shape, dtype and device for a message: "[3, 4] float cpu".
std::string Describe(const at::Tensor& tensor);

}  // namespace medfusion

#endif  // MEDFUSION_DATA_TENSORS_H_
