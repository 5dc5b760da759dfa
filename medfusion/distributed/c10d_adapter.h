// The calls into c10d whose names differ between LibTorch versions. Internal; for .cc files.
#ifndef MEDFUSION_DISTRIBUTED_C10D_ADAPTER_H_
#define MEDFUSION_DISTRIBUTED_C10D_ADAPTER_H_

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace medfusion::c10d_adapter {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
inline auto AllGather(c10d::Backend& backend, at::Tensor& output, at::Tensor& input) {
  return backend.all_gather_single(output, input);
}
inline auto ReduceScatter(c10d::Backend& backend, at::Tensor& output, at::Tensor& input,
                          const c10d::ReduceScatterOptions& options) {
  return backend.reduce_scatter_single(output, input, options);
}
inline auto AllToAll(c10d::Backend& backend, at::Tensor& output, at::Tensor& input,
                     std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes) {
  return backend.all_to_all_single(output, input, output_sizes, input_sizes);
}
#else
inline auto AllGather(c10d::Backend& backend, at::Tensor& output, at::Tensor& input) {
  return backend._allgather_base(output, input);
}
inline auto ReduceScatter(c10d::Backend& backend, at::Tensor& output, at::Tensor& input,
                          const c10d::ReduceScatterOptions& options) {
  return backend._reduce_scatter_base(output, input, options);
}
inline auto AllToAll(c10d::Backend& backend, at::Tensor& output, at::Tensor& input,
                     std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes) {
  return backend.alltoall_base(output, input, output_sizes, input_sizes);
}
#endif

}  // namespace medfusion::c10d_adapter

#endif  // MEDFUSION_DISTRIBUTED_C10D_ADAPTER_H_
