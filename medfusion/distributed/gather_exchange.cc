#include <algorithm>
#include <cstring>
#include <utility>

#include "medfusion/distributed/exchange.h"

namespace medfusion {
namespace {

// Larger than where chunks are reduced: nothing is to be done between them.
constexpr int64_t kMovedChunkBytes = 4 * 1024 * 1024;

class GatherExchange : public Exchange {
 public:
  GatherExchange(std::shared_ptr<ExchangeRoom> room, at::Tensor output, at::Tensor input)
      : Exchange(std::move(room), {output, input}),
        output_(Bytes(output)),
        input_(Bytes(input)),
        bytes_(NumBytes(input)),
        chunks_((bytes_ + kMovedChunkBytes - 1) / kMovedChunkBytes) {}

 private:
  void Post() override {
    for (int64_t chunk = 0; chunk < std::min(kDepth, chunks_); ++chunk) PostChunk(chunk);
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (int distance = 1; distance < size(); ++distance) {
        Send(input_ + chunk * kMovedChunkBytes, ChunkBytes(chunk), Peer(distance));
      }
    }
  }

  void Complete() override {
    std::byte* own = output_ + rank() * bytes_;
    if (own != input_ && bytes_ > 0) std::memcpy(own, input_, bytes_);
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      Await(arriving_[chunk % kDepth]);
      if (chunk + kDepth < chunks_) PostChunk(chunk + kDepth);
    }
    AwaitSends();
  }

  int64_t ChunkBytes(int64_t chunk) const {
    return std::min(kMovedChunkBytes, bytes_ - chunk * kMovedChunkBytes);
  }

  void PostChunk(int64_t chunk) {
    for (int distance = size() - 1; distance > 0; --distance) {
      const int peer = Peer(distance);
      arriving_[chunk % kDepth].push_back(
          Receive(output_ + peer * bytes_ + chunk * kMovedChunkBytes, ChunkBytes(chunk), peer));
    }
  }

  std::byte* const output_;
  const std::byte* const input_;
  const int64_t bytes_;
  const int64_t chunks_;
  Transfers arriving_[kDepth];
};

}  // namespace

std::shared_ptr<Exchange> MakeGather(std::shared_ptr<ExchangeRoom> room, const at::Tensor& output,
                                     const at::Tensor& input) {
  return std::make_shared<GatherExchange>(std::move(room), output, input);
}

}  // namespace medfusion
