#include "medfusion/distributed/direct_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "medfusion/distributed/reductions.h"

namespace medfusion {
namespace {

// Of a small collective: the caller finishes it.
constexpr int64_t kSmallBytes = 256 * 1024;
// Of a chunk that is reduced, at most; with many peers less, so that scratch stays below
// kScratchBytes.
constexpr int64_t kReducedChunkBytes = 1024 * 1024;
constexpr int64_t kScratchBytes = 16 * 1024 * 1024;
// Of a chunk that is only moved.
constexpr int64_t kMovedChunkBytes = 4 * 1024 * 1024;
// Chunks of each peer that may be under way to this rank. Not all, because what the kernel holds
// falls out of the caches, and takes twice as long.
constexpr int64_t kDepth = 3;
// Free scratch that is kept: the communication thread's and a waiting caller's.
constexpr size_t kFreeScratch = 2;
constexpr int kTags = 1 << 30;

std::byte* Bytes(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

// Whether all-reduce sends every rank the whole tensor.
bool ReducesWhole(int64_t bytes, int size) { return bytes * (size - 1) <= kSmallBytes; }

int64_t NumBytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

// What the exchanges of a group share.
struct DirectExchange::Room {
  Room(std::unique_ptr<Transport> transport, int rank, int size)
      : transport(std::move(transport)), rank(rank), size(size) {}

  at::Tensor TakeScratch(int64_t bytes) {
    {
      std::lock_guard lock(mutex);
      if (!free_scratch.empty()) {
        at::Tensor scratch = std::move(free_scratch.back());
        free_scratch.pop_back();
        if (NumBytes(scratch) >= bytes) return scratch;
      }
    }
    return at::empty({bytes}, at::kByte);
  }

  void GiveBack(at::Tensor scratch) {
    std::lock_guard lock(mutex);
    if (free_scratch.size() < kFreeScratch) free_scratch.push_back(std::move(scratch));
  }

  const std::unique_ptr<Transport> transport;
  const int rank;
  const int size;
  int next_tag = 0;  // two for each exchange
  TaskThread thread;

  std::mutex mutex;  // of all below
  std::vector<at::Tensor> free_scratch;
  std::string failure;
  // Failed exchanges: their messages may still be under way, so their memory stays.
  std::vector<std::shared_ptr<Exchange>> failed;
};

class DirectExchange::Exchange : public Task, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Room> room, std::vector<at::Tensor> tensors)
      : room_(std::move(room)), tag_(room_->next_tag), tensors_(std::move(tensors)) {
    room_->next_tag = (room_->next_tag + 2) % kTags;
  }

  void Begin() {
    try {
      Post();
    } catch (...) {
      Bury();
      throw;
    }
  }

  void LeaveToBackground() override { room_->thread.Add(shared_from_this()); }

  void Abort() override {
    std::lock_guard lock(waiting_mutex_);
    aborted_ = true;
    if (waiting_ != nullptr) waiting_->Abort();
  }

 protected:
  // Posts what can be, without blocking.
  virtual void Post() = 0;
  // Does the rest.
  virtual void Complete() = 0;

  int rank() const { return room_->rank; }
  int size() const { return room_->size; }
  // The other ranks, so that not all begin with the same one: 1 is the next, size() - 1 the
  // previous.
  int Peer(int distance) const { return (room_->rank + distance) % room_->size; }
  Room& room() { return *room_; }

  void Send(const std::byte* data, int64_t bytes, int peer, int lane = 0) {
    if (bytes > 0) sends_.push_back(room_->transport->Send(data, bytes, peer, tag_ + lane));
  }
  std::unique_ptr<Transfer> Receive(std::byte* data, int64_t bytes, int peer, int lane = 0) {
    if (bytes == 0) return nullptr;
    return room_->transport->Receive(data, bytes, peer, tag_ + lane);
  }
  // Waits, and ends the transfer. Null is a message of no bytes.
  void Await(std::unique_ptr<Transfer>& transfer) {
    if (!transfer) return;
    {
      std::lock_guard lock(waiting_mutex_);
      if (aborted_) throw std::runtime_error("given up, because the group has failed");
      waiting_ = transfer.get();
    }
    try {
      transfer->Wait();
    } catch (...) {
      std::lock_guard lock(waiting_mutex_);
      waiting_ = nullptr;
      throw;
    }
    std::lock_guard lock(waiting_mutex_);
    waiting_ = nullptr;
    transfer.reset();
  }
  void AwaitAll(std::vector<std::unique_ptr<Transfer>>& transfers) {
    for (auto& transfer : transfers) Await(transfer);
    transfers.clear();
  }
  void AwaitSends() { AwaitAll(sends_); }

 private:
  void Body() final {
    try {
      {
        std::lock_guard lock(room_->mutex);
        if (!room_->failure.empty()) {
          throw std::runtime_error("an earlier collective failed: " + room_->failure);
        }
      }
      Complete();
    } catch (...) {
      Bury();
      throw;
    }
  }

  void Bury() {
    std::string cause = "unknown";
    try {
      throw;
    } catch (const std::exception& error) {
      cause = error.what();
    } catch (...) {
    }
    std::lock_guard lock(room_->mutex);
    if (room_->failure.empty()) room_->failure = cause;
    room_->failed.push_back(shared_from_this());
  }

  const std::shared_ptr<Room> room_;
  const int tag_;
  const std::vector<at::Tensor> tensors_;  // outlive the messages
  std::vector<std::unique_ptr<Transfer>> sends_;
  std::mutex waiting_mutex_;
  Transfer* waiting_ = nullptr;
  bool aborted_ = false;
};

class DirectExchange::GatherExchange : public Exchange {
 public:
  GatherExchange(std::shared_ptr<Room> room, at::Tensor output, at::Tensor input)
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
      AwaitAll(arriving_[chunk % kDepth]);
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
  std::vector<std::unique_ptr<Transfer>> arriving_[kDepth];
};

class DirectExchange::SmallReduceExchange : public Exchange {
 public:
  SmallReduceExchange(std::shared_ptr<Room> room, at::Tensor tensor, ReduceOp op)
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
    AwaitAll(receives_);
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
  std::vector<std::unique_ptr<Transfer>> receives_;
};

// Reduce-scatter, and with `gather` all-reduce, of parts of `part` elements; the last parts may be
// shorter or empty.
class DirectExchange::ChunkedReduceExchange : public Exchange {
 public:
  ChunkedReduceExchange(std::shared_ptr<Room> room, at::Tensor output, at::Tensor input,
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
      AwaitAll(arriving_[chunk % kDepth]);
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
    AwaitAll(gathered_[chunk % kDepth]);
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
  std::vector<std::unique_ptr<Transfer>> arriving_[kDepth];
  std::vector<std::unique_ptr<Transfer>> gathered_[kDepth];
};

DirectExchange::DirectExchange(std::unique_ptr<Transport> transport, int rank, int size)
    : room_(std::make_shared<Room>(std::move(transport), rank, size)) {}

DirectExchange::~DirectExchange() {
  room_->thread.Stop(/*abort=*/!failure().empty());
  std::vector<std::shared_ptr<Exchange>> failed;
  std::lock_guard lock(room_->mutex);
  failed.swap(room_->failed);
}

std::shared_ptr<Task> DirectExchange::Begin(std::shared_ptr<Exchange> exchange, bool background) {
  exchange->Begin();
  if (background) exchange->LeaveToBackground();
  return exchange;
}

std::shared_ptr<Task> DirectExchange::AllGather(const at::Tensor& output, const at::Tensor& input) {
  return Begin(std::make_shared<GatherExchange>(room_, output, input),
               NumBytes(output) > kSmallBytes);
}

std::shared_ptr<Task> DirectExchange::ReduceScatter(const at::Tensor& output,
                                                    const at::Tensor& input, ReduceOp op) {
  return Begin(std::make_shared<ChunkedReduceExchange>(room_, output, input, output.numel(),
                                                       /*gather=*/false, op),
               NumBytes(input) > kSmallBytes);
}

std::shared_ptr<Task> DirectExchange::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  if (ReducesWhole(NumBytes(tensor), room_->size)) {
    return Begin(std::make_shared<SmallReduceExchange>(room_, tensor, op), false);
  }
  // In the background whatever its size: the others wait for what this rank reduces.
  const int64_t part = (tensor.numel() + room_->size - 1) / room_->size;
  return Begin(std::make_shared<ChunkedReduceExchange>(room_, tensor, tensor, part,
                                                       /*gather=*/true, op),
               true);
}

int64_t DirectExchange::AllReduceBytesSent(int64_t bytes, int size) {
  return ReducesWhole(bytes, size) ? bytes * (size - 1) : 2 * bytes * (size - 1) / size;
}

std::string DirectExchange::failure() const {
  std::lock_guard lock(room_->mutex);
  return room_->failure;
}

}  // namespace medfusion
