// Reductions as c10d names them, and as this rank computes them itself. Internal to this target.
#ifndef MEDFUSION_DISTRIBUTED_REDUCTIONS_H_
#define MEDFUSION_DISTRIBUTED_REDUCTIONS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "medfusion/distributed/reduce_op.h"

namespace medfusion {

c10d::ReduceOp::RedOpType ToC10d(ReduceOp op);

// output [n] = the reduction over the rows of `parts` [size, n], in row order; float16 and bfloat16
// are summed in float32.
void ReduceRows(at::Tensor& output, const at::Tensor& parts, ReduceOp op);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_REDUCTIONS_H_
