// The memory in which units are whole: taken when a unit needs it, kept for the next one.
#ifndef MEDFUSION_FSDP_FULL_BUFFERS_H_
#define MEDFUSION_FSDP_FULL_BUFFERS_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace medfusion {

// Not thread safe. Per model and rank there is one for parameters and one for gradients.
class FullBuffers {
 public:
  explicit FullBuffers(c10::Device device) : device_(device) {}

  struct Buffer {
    c10::DataPtr data;
    int64_t capacity = 0;  // in bytes
  };

  // `bytes`, not initialised. A returned buffer of that size is used again; when there is none, the
  // returned ones are freed first. So memory never exceeds what was in use at the worst moment.
  Buffer Take(int64_t bytes);
  void Return(Buffer buffer);
  // A buffer of that size, taken before, will not be returned; whoever has it frees it.
  void Forget(int64_t bytes) { allocated_ -= bytes; }

  // In use and kept, now and at most so far, in bytes.
  int64_t allocated_bytes() const { return allocated_; }
  int64_t peak_bytes() const { return peak_; }

 private:
  const c10::Device device_;
  std::vector<Buffer> free_;
  int64_t allocated_ = 0;
  int64_t peak_ = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_FULL_BUFFERS_H_
