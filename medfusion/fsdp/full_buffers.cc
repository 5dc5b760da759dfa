#include "medfusion/fsdp/full_buffers.h"

#include <algorithm>
#include <utility>

namespace medfusion {

FullBuffers::Buffer FullBuffers::Take(int64_t bytes) {
  const auto fits = std::find_if(free_.begin(), free_.end(), [bytes](const Buffer& buffer) {
    return buffer.capacity == bytes;
  });
  if (fits != free_.end()) {
    Buffer buffer = std::move(*fits);
    free_.erase(fits);
    return buffer;
  }
  for (const Buffer& buffer : free_) allocated_ -= buffer.capacity;
  free_.clear();
  Buffer buffer{c10::GetAllocator(device_.type())->allocate(bytes), bytes};
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return buffer;
}

void FullBuffers::Return(Buffer buffer) { free_.push_back(std::move(buffer)); }

}  // namespace medfusion
