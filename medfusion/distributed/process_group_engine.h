// What a ProcessGroup holds of c10d. Internal to this target.
#ifndef MEDFUSION_DISTRIBUTED_PROCESS_GROUP_ENGINE_H_
#define MEDFUSION_DISTRIBUTED_PROCESS_GROUP_ENGINE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "medfusion/distributed/direct_exchange.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

struct ProcessGroup::Engine {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;
  std::mutex backend_mutex;  // held in calls of the backend: Note [Messages over Gloo]
  // For groups of several ranks on the CPU.
  std::unique_ptr<DirectExchange> exchange;
};

// "Float [2, 3]".
std::string DescribeForCall(const at::Tensor& tensor);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_PROCESS_GROUP_ENGINE_H_
