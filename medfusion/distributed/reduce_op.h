// How a collective combines the ranks' values.
#ifndef MEDFUSION_DISTRIBUTED_REDUCE_OP_H_
#define MEDFUSION_DISTRIBUTED_REDUCE_OP_H_

namespace medfusion {

enum class ReduceOp {
  kSum,
  // The sum divided by the group's size, on every backend in that order (Gloo's own average was
  // wrong in older versions). Floating-point tensors only.
  kAverage,
  kProduct,
  kMin,
  kMax,
};

// "sum", "average", "product", "min" or "max".
const char* ReduceOpName(ReduceOp op);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_REDUCE_OP_H_
