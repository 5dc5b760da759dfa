// The handle through which ranks talk: collectives, sub-groups, topology and memory.
//
// A rank is a thread or a process that owns one ProcessGroup; several can live in one process, each
// with its own handle. "Collective" below means: every rank of the group makes the same call, in
// the same order, with the same shapes and dtypes. A rank that does not makes the others fail at
// the timeout; with GroupOptions::check_collectives they say at once which call differs.
//
// Tensors are dense and contiguous, on the device that the backend serves (Gloo: CPU, NCCL: CUDA).
// Every collective starts at once and returns a Work; call ->Wait() before using the output. Misuse
// (wrong shape, dtype, device) throws std::invalid_argument on the calling rank before anything is
// sent; failure of the network or a peer throws CollectiveError, from the call or from Wait().
#ifndef MEDFUSION_DISTRIBUTED_PROCESS_GROUP_H_
#define MEDFUSION_DISTRIBUTED_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "medfusion/distributed/reduce_op.h"
#include "medfusion/distributed/work.h"

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d

namespace medfusion {

class Task;
struct BackendKind;

struct GroupOptions {
  // Ends every wait: for a peer, for a collective, for the forming of a sub-group.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);

  // Before each collective the ranks compare its sequence number, operation, dtype, shape and root
  // through the store, and a difference is an error on all of them that quotes both calls. Costs a
  // few store round trips per collective: for debugging. (PyTorch: TORCH_DISTRIBUTED_DEBUG=DETAIL.)
  bool check_collectives = false;

  // The local address that this rank's sockets bind; empty is the loopback interface, for ranks of
  // one host. SetupDistributed finds it: the interface that leads to MASTER_ADDR, or
  // GLOO_SOCKET_IFNAME's.
  std::string local_address;

  // The GPU of this rank, for backends that serve one. SetupDistributed takes local_rank.
  int device_index = 0;
};

// What this rank has sent so far, by the algorithms' own count (docs/collectives.md), not by the
// wire's.
struct TrafficCounters {
  int64_t collectives = 0;
  int64_t bytes_sent = 0;
};

class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  // Forms a group over a store that all `size` ranks share, with the named backend ("gloo",
  // "nccl"). `name` is the same on all ranks and unique in the store. Collective: returns when all
  // ranks are connected. Throws CollectiveError when a rank is missing at the timeout. `hosts[r]`
  // is an opaque name of the machine that rank r runs on; empty means one common host.
  static std::shared_ptr<ProcessGroup> Create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                              int size, std::string_view backend, std::string name,
                                              const GroupOptions& options = {},
                                              std::vector<std::string> hosts = {});

  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  // "gloo" or "nccl".
  const std::string& backend_name() const { return backend_name_; }
  // The device type whose tensors the collectives take.
  c10::DeviceType device_type() const { return device_type_; }
  // This rank's device: where its model and its tensors belong.
  at::Device device() const;
  const GroupOptions& options() const { return options_; }
  const TrafficCounters& traffic() const { return traffic_; }
  // The same for this group, the one it was made from, and all that were made from either, taken
  // together: what training on sub-groups costs.
  const TrafficCounters& family_traffic() const { return *family_traffic_; }
  // True after a collective of this group has failed; all later ones throw.
  bool failed() const;

  // The ranks of this group that run on the same host as `rank`, ascending.
  std::vector<int> RanksOnHostOf(int rank) const;
  // The number of this group's rank `rank` in the world group.
  int GlobalRank(int rank) const { return global_ranks_[rank]; }

  // Collective. Every element of `tensor` becomes the reduction over the ranks. Bitwise the same on
  // every rank and from run to run.
  WorkPtr AllReduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum);

  // Collective. `output` [size * n elements] receives every rank's `input` [n elements], in rank
  // order. `input` may be this rank's part of `output`: then nothing is copied.
  WorkPtr AllGather(at::Tensor output, at::Tensor input);

  // Collective. `output` [n elements] becomes the reduction over the ranks of the rank-th of the
  // `size` equal parts of `input` [size * n elements]. `input` may be overwritten; `output` may be
  // this rank's part of it. On Gloo each rank sends (size-1)/size of its input, once; float16 and
  // bfloat16 are summed in float32, in rank order.
  WorkPtr ReduceScatter(at::Tensor output, at::Tensor input, ReduceOp op = ReduceOp::kSum);

  // Collective. `tensor` becomes rank `root`'s.
  WorkPtr Broadcast(at::Tensor tensor, int root);

  // Collective. Part i of `input` goes to rank i, and part i of `output` comes from rank i. The
  // parts are equal when no sizes are given, else of input_sizes[i] and output_sizes[i] elements.
  WorkPtr AllToAll(at::Tensor output, at::Tensor input, std::vector<int64_t> output_sizes = {},
                   std::vector<int64_t> input_sizes = {});

  // Collective. Returns when every rank has called it. Blocks.
  void Barrier();

  // Collective. Every rank's bytes, in rank order; lengths may differ. Blocks. For control data,
  // not bulk.
  std::vector<std::string> AllGatherBytes(std::string_view bytes);

  // Collective over this group, members or not: all ranks pass the same list, ascending and without
  // repeats. Returns the sub-group of those ranks, numbered in the list's order, or null on ranks
  // that are not in it. The sub-group has this one's timeout and checks.
  std::shared_ptr<ProcessGroup> NewGroup(std::span<const int> ranks);

  // Collective over this group. Ranks with the same `color` form a sub-group, numbered in this
  // group's order (MPI_Comm_split with the rank as key).
  std::shared_ptr<ProcessGroup> Split(int color);

  // A zeroed flat tensor of `numel` elements on the group's device that collectives of this group
  // serve best: gradients, buckets and shards live in such tensors. The default is plain memory; a
  // backend may place it where the ranks of a host all see it. Not collective for the backends of
  // today, but call it in the same order with the same sizes on all ranks. The tensor owns its
  // memory.
  at::Tensor Allocate(int64_t numel, at::ScalarType dtype);

  // The engine below, for code that needs c10d itself (tests that compare with c10d::Reducer). A
  // group of one rank has no backend: null.
  const c10::intrusive_ptr<c10d::Backend>& c10d_backend() const;
  const c10::intrusive_ptr<c10d::Store>& c10d_store() const;

 private:
  struct Engine;
  class TrackedWork;

  ProcessGroup();
  void Connect(const BackendKind& kind);

  // What a collective is called in errors, and what check_collectives compares.
  struct Call {
    std::string text;
    int64_t bytes_sent = 0;
  };
  using Finish = std::function<void()>;

  // Counts the call, compares it if asked, runs `start` and wraps what it returns.
  WorkPtr Run(const Call& call, const std::function<std::shared_ptr<Task>()>& start);
  // The same for a collective of c10d's; `finish` runs once in the first Wait(), after the
  // transfer. In a group of one rank it is all there is.
  WorkPtr RunC10d(const Call& call, const std::function<c10::intrusive_ptr<c10d::Work>()>& start,
                  Finish finish);
  // True when collectives of the CPU go from every rank to every other directly; with many ranks
  // the algorithms of c10d need fewer messages.
  bool FewRanks() const;
  void CheckTensor(std::string_view call, std::string_view argument,
                   const at::Tensor& tensor) const;
  // Throws CollectiveError with who is to blame; every later call repeats it.
  [[noreturn]] void Fail(const std::string& call, const std::string& cause);

  int rank_ = 0;
  int size_ = 1;
  std::string name_;
  std::string backend_name_;
  c10::DeviceType device_type_ = c10::DeviceType::CPU;
  GroupOptions options_;
  TrafficCounters traffic_;
  std::shared_ptr<TrafficCounters> family_traffic_ = std::make_shared<TrafficCounters>();
  std::vector<std::string> hosts_;  // by rank of this group
  std::vector<int> global_ranks_;   // by rank of this group
  int64_t sequence_ = 0;            // collectives started
  int64_t subgroups_ = 0;           // sub-groups asked for, the same on all ranks
  std::string failure_;             // of the first failed collective
  std::unique_ptr<Engine> engine_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_PROCESS_GROUP_H_
