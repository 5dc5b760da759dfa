#include "medfusion/distributed/reductions.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include <algorithm>

namespace medfusion {
namespace {

// Elements that are reduced at a time: they stay in the cache over all rows, and are fewer than
// ATen hands to a pool of threads.
constexpr int64_t kBlock = 24 * 1024;

void Combine(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      at::add_out(out, a, b);
      return;
    case ReduceOp::kProduct:
      at::mul_out(out, a, b);
      return;
    case ReduceOp::kMin:
      at::minimum_out(out, a, b);
      return;
    case ReduceOp::kMax:
      at::maximum_out(out, a, b);
      return;
  }
}

void ReduceBlock(at::Tensor& output, const std::vector<at::Tensor>& rows, size_t own, ReduceOp op) {
  // Rows before this rank's are combined in the first one's place, because `output` may be this
  // rank's row.
  at::Tensor sum = rows[0];
  for (size_t row = 1; row < rows.size(); ++row) {
    if (row >= own) {
      Combine(output, sum, rows[row], op);
      sum = output;
    } else {
      Combine(sum, sum, rows[row], op);
    }
  }
  if (op == ReduceOp::kAverage) output.div_(static_cast<int64_t>(rows.size()));
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

void ReduceInOrder(std::byte* output, const std::vector<std::byte*>& rows, int own, int64_t numel,
                   at::ScalarType dtype, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const bool low = dtype == at::kHalf || dtype == at::kBFloat16;
  const int64_t width = static_cast<int64_t>(c10::elementSize(dtype));
  std::vector<at::Tensor> blocks(rows.size());
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t count = std::min(kBlock, numel - begin);
    const auto block = [&](std::byte* data) {
      return at::from_blob(data + begin * width, {count}, at::TensorOptions(dtype));
    };
    for (size_t row = 0; row < rows.size(); ++row) {
      blocks[row] = block(rows[row]);
      if (low) blocks[row] = blocks[row].to(at::kFloat);
    }
    at::Tensor out = block(output);
    at::Tensor sum = low ? blocks[own] : out;
    ReduceBlock(sum, blocks, own, op);
    if (low) out.copy_(sum);
  }
}

}  // namespace medfusion
