#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "medfusion/distributed/exchange.h"
#include "medfusion/distributed/reductions.h"

namespace medfusion {
namespace {

// At most; with many peers less, so that scratch stays below kScratchBytes.
constexpr int64_t kReducedChunkBytes = 1024 * 1024;
constexpr int64_t kScratchBytes = 16 * 1024 * 1024;

class WholeReduceExchange : public Exchange {
 public:
  WholeReduceExchange(std::shared_ptr<ExchangeRoom> room, at::Tensor tensor, ReduceOp op)
      : Exchange(std::move(room), {tensor}), tensor_(std::move(tensor)), op_(op) {}

 private:
  void Post() override {
    const int64_t bytes = NumBytes(tensor_);
    scratch_ = at::empty({bytes * size()}, at::kByte);
    for (int distance = size() - 1; distance > 0; --distance) {
      const int peer = Peer(distance);
      receives_.push_back(Receive(Row(peer), bytes, peer));
    }
    for (int distance = 1; distance < size(); ++distance) {
      Send(Bytes(tensor_), bytes, Peer(distance));
    }
  }

  void Complete() override {
    Await(receives_);
    AwaitSends();  // before the tensor is overwritten
    std::vector<std::byte*> rows;
    for (int r = 0; r < size(); ++r) rows.push_back(Row(r));
    ReduceInOrder(Bytes(tensor_), rows, rank(), tensor_.numel(), tensor_.scalar_type(), op_);
  }

  std::byte* Row(int r) const {
    return r == rank() ? Bytes(tensor_) : Bytes(scratch_) + r * NumBytes(tensor_);
  }

  const at::Tensor tensor_;
  const ReduceOp op_;
  at::Tensor scratch_;
  Transfers receives_;
};

// Reduce-scatter, and with `gather` all-reduce, of parts of `part` elements; the last parts may be
// shorter or empty.
class ChunkedReduceExchange : public Exchange {
 public:
  ChunkedReduceExchange(std::shared_ptr<ExchangeRoom> room, at::Tensor output, at::Tensor input,
                        int64_t part, bool gather, ReduceOp op)
      : Exchange(std::move(room), {output, input}),
        output_(std::move(output)),
        input_(std::move(input)),
        gather_(gather),
        op_(op),
        width_(static_cast<int64_t>(input_.element_size())),
        part_(part),
        chunk_(ChunkElements()),
        chunks_((part + chunk_ - 1) / chunk_) {}

 private:
  void Post() override {
    if (gather_) {
      for (int64_t chunk = 0; chunk < std::min(kDepth, chunks_); ++chunk) PostGathered(chunk);
    }
    if (chunks_ == 1) PostChunk(0);
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (int distance = 1; distance < size(); ++distance) {
        const int peer = Peer(distance);
        Send(InputChunk(peer, chunk), ChunkBytes(peer, chunk), peer);
      }
    }
  }

  void Complete() override {
    for (int64_t chunk = chunks_ == 1 ? 1 : 0; chunk < std::min(kDepth, chunks_); ++chunk) {
      PostChunk(chunk);
    }
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      Await(arriving_[chunk % kDepth]);
      Reduce(chunk);
      if (chunk + kDepth < chunks_) PostChunk(chunk + kDepth);
      if (!gather_) continue;
      for (int distance = 1; distance < size(); ++distance) {
        Send(OutputChunk(chunk), ChunkBytes(rank(), chunk), Peer(distance), /*lane=*/1);
      }
      if (chunk > 0) AwaitGathered(chunk - 1);
    }
    if (scratch_.defined()) room().GiveBack(std::move(scratch_));
    if (gather_ && chunks_ > 0) AwaitGathered(chunks_ - 1);
    AwaitSends();
  }

  // A reduced chunk comes back only after this rank's own has left, so its place is free.
  void PostGathered(int64_t chunk) {
    for (int distance = size() - 1; distance > 0; --distance) {
      const int peer = Peer(distance);
      gathered_[chunk % kDepth].push_back(
          Receive(InputChunk(peer, chunk), ChunkBytes(peer, chunk), peer, /*lane=*/1));
    }
  }
  void AwaitGathered(int64_t chunk) {
    Await(gathered_[chunk % kDepth]);
    if (chunk + kDepth < chunks_) PostGathered(chunk + kDepth);
  }

  int64_t ChunkElements() const {
    const int64_t share = kScratchBytes / kDepth / (size() - 1);
    return std::max<int64_t>(1, std::min(kReducedChunkBytes, share) / width_);
  }

  // In elements.
  int64_t PartBegin(int peer) const { return std::min(input_.numel(), peer * part_); }
  int64_t ChunkBytes(int peer, int64_t chunk) const {
    const int64_t part = PartBegin(peer + 1) - PartBegin(peer);
    return std::clamp<int64_t>(part - chunk * chunk_, 0, chunk_) * width_;
  }
  // Chunks of no bytes may lie behind the end.
  std::byte* InputChunk(int peer, int64_t chunk) const {
    return Bytes(input_) + (PartBegin(peer) + chunk * chunk_) * width_;
  }
  std::byte* OutputChunk(int64_t chunk) const {
    return gather_ ? InputChunk(rank(), chunk) : Bytes(output_) + chunk * chunk_ * width_;
  }
  std::byte* Arrival(int distance, int64_t chunk) const {
    const int64_t slot = (chunk % kDepth) * (size() - 1) + distance - 1;
    return Bytes(scratch_) + slot * std::min(chunk_, part_) * width_;
  }

  void PostChunk(int64_t chunk) {
    if (!scratch_.defined()) {
      const int64_t slots = std::min(kDepth, chunks_) * (size() - 1);
      scratch_ = room().TakeScratch(slots * std::min(chunk_, part_) * width_);
    }
    for (int distance = size() - 1; distance > 0; --distance) {
      arriving_[chunk % kDepth].push_back(
          Receive(Arrival(distance, chunk), ChunkBytes(rank(), chunk), Peer(distance)));
    }
  }

  void Reduce(int64_t chunk) {
    std::vector<std::byte*> rows(size());
    rows[rank()] = InputChunk(rank(), chunk);
    for (int distance = 1; distance < size(); ++distance) {
      rows[Peer(distance)] = Arrival(distance, chunk);
    }
    ReduceInOrder(OutputChunk(chunk), rows, rank(), ChunkBytes(rank(), chunk) / width_,
                  input_.scalar_type(), op_);
  }

  const at::Tensor output_;
  const at::Tensor input_;
  const bool gather_;
  const ReduceOp op_;
  const int64_t width_;
  const int64_t part_;
  const int64_t chunk_;
  const int64_t chunks_;
  at::Tensor scratch_;
  Transfers arriving_[kDepth];
  Transfers gathered_[kDepth];
};

}  // namespace

std::shared_ptr<Exchange> MakeWholeReduce(std::shared_ptr<ExchangeRoom> room,
                                          const at::Tensor& tensor, ReduceOp op) {
  return std::make_shared<WholeReduceExchange>(std::move(room), tensor, op);
}

std::shared_ptr<Exchange> MakeReduceScatter(std::shared_ptr<ExchangeRoom> room,
                                            const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) {
  return std::make_shared<ChunkedReduceExchange>(std::move(room), output, input, output.numel(),
                                                 /*gather=*/false, op);
}

std::shared_ptr<Exchange> MakePartsReduce(std::shared_ptr<ExchangeRoom> room,
                                          const at::Tensor& tensor, ReduceOp op) {
  const int64_t part = (tensor.numel() + room->size - 1) / room->size;
  return std::make_shared<ChunkedReduceExchange>(std::move(room), tensor, tensor, part,
                                                 /*gather=*/true, op);
}

}  // namespace medfusion
