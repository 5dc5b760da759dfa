// Reductions as c10d names them, and as this rank computes them itself. Internal to this target.
#ifndef MEDFUSION_DISTRIBUTED_REDUCTIONS_H_
#define MEDFUSION_DISTRIBUTED_REDUCTIONS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "medfusion/distributed/reduce_op.h"

namespace medfusion {

c10d::ReduceOp::RedOpType ToC10d(ReduceOp op);

// output [numel] = the reduction over `rows` (two or more, [numel] each, of `dtype`), in their
// order; float16 and bfloat16 are summed in float32. `output` may be rows[own]; the other rows may
// be overwritten. On the calling thread alone, whatever ATen's number of threads.
void ReduceInOrder(std::byte* output, const std::vector<std::byte*>& rows, int own, int64_t numel,
                   at::ScalarType dtype, ReduceOp op);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_REDUCTIONS_H_
