// What a data set hands to a training step.
#ifndef MEDFUSION_DATA_BATCH_H_
#define MEDFUSION_DATA_BATCH_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace medfusion {

// n samples; the tensors are fresh copies that the receiver owns.
struct Batch {
  at::Tensor features;          // [n, F] float32
  at::Tensor targets;           // [n] int64, a class each
  std::vector<size_t> indices;  // [n], positions in the data set
};

}  // namespace medfusion

#endif  // MEDFUSION_DATA_BATCH_H_
