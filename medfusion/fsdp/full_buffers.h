// The memory in which units are whole: taken when a unit is paged in, kept for the next one.
#ifndef MEDFUSION_FSDP_FULL_BUFFERS_H_
#define MEDFUSION_FSDP_FULL_BUFFERS_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace medfusion {

// Not thread safe. One per model and rank.
class FullBuffers {
 public:
  explicit FullBuffers(c10::Device device) : device_(device) {}

  struct Buffer {
    c10::DataPtr data;
    int64_t capacity = 0;  // in bytes
  };

  // At least `bytes`, not initialised. A returned buffer is used again when it is large enough and
  // not more than twice as large; else the returned ones are freed first, so that memory never
  // exceeds what is in use at the worst moment.
  Buffer Take(int64_t bytes);
  void Return(Buffer buffer);

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
