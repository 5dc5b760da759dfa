// The GPU backend: NCCL, one GPU for each rank.
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "medfusion/distributed/backend.h"

namespace medfusion {
namespace {

c10::intrusive_ptr<c10d::Backend> CreateNccl(const BackendRequest& request) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(request.device_index));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size,
                                                     options);
}

const bool registered [[maybe_unused]] =
    RegisterBackend({"nccl", c10::DeviceType::CUDA, CreateNccl, [](int local_world_size) {
                       return c10::cuda::device_count() >= local_world_size;
                     }});

}  // namespace
}  // namespace medfusion
