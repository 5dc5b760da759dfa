#include "medfusion/distributed/reductions.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace medfusion {
namespace {

void Accumulate(at::Tensor& sum, const at::Tensor& part, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      sum.add_(part);
      return;
    case ReduceOp::kProduct:
      sum.mul_(part);
      return;
    case ReduceOp::kMin:
      sum.copy_(at::minimum(sum, part));
      return;
    case ReduceOp::kMax:
      sum.copy_(at::maximum(sum, part));
      return;
  }
}

}  // namespace

c10d::ReduceOp::RedOpType ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // summed by the backend, divided by us
      return c10d::ReduceOp::SUM;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::UNUSED;
}

void ReduceRows(at::Tensor& output, const at::Tensor& parts, ReduceOp op) {
  at::NoGradGuard no_grad;
  const bool low = output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16;
  at::Tensor sum = low ? parts[0].to(at::kFloat) : output.view({-1});
  if (!low) sum.copy_(parts[0]);
  for (int64_t row = 1; row < parts.size(0); ++row) Accumulate(sum, parts[row], op);
  if (op == ReduceOp::kAverage) sum.div_(parts.size(0));
  if (low) output.view({-1}).copy_(sum);
}

}  // namespace medfusion
