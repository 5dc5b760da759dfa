// One rank's copy of a module: everything of DDPWrapper that does not depend on the module's type.
#ifndef MEDFUSION_DDP_REPLICA_H_
#define MEDFUSION_DDP_REPLICA_H_

#include <absl/status/status.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "medfusion/ddp/module_state.h"
#include "medfusion/ddp/options.h"
#include "medfusion/ddp/reducer.h"
#include "medfusion/ddp/sync_batch_norm.h"

namespace medfusion {

struct JoinOptions {
  // Gradients are divided by the number of ranks even when some have run out of data, so that every
  // sample weighs the same; false divides by the number of ranks that still have some. PyTorch's
  // divide_by_initial_world_size.
  bool divide_by_initial_world_size = true;
  // As soon as one rank has run out of data, all ranks throw JoinEnded instead of going on without
  // it.
  bool throw_on_early_termination = false;
};

// Some rank ran out of data and throw_on_early_termination was set. Thrown on all ranks.
class JoinEnded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Errors and collectives as DDPWrapper documents them. Belongs to one thread.
class Replica {
 public:
  Replica(std::shared_ptr<torch::nn::Module> module, DDPOptions options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  Reducer& reducer() { return *reducer_; }
  // Each once, however many names it has.
  std::vector<at::Tensor> parameters() const;

  // Around every forward; what is returned lives until the forward has returned.
  [[nodiscard]] std::unique_ptr<SyncBatchNormScope> BeginForward();
  void EndForward(std::span<const at::Tensor> outputs);

  // For Join. Between Enter and Leave each forward tells the ranks without data of itself.
  void EnterJoin(const JoinOptions& options);
  void LeaveJoin();
  enum class ShadowResult { kEverybodyJoined, kUnsynced, kStepped };
  // Collective with the other ranks' next forward and backward.
  ShadowResult Shadow(bool keep_gradients);
  // Collective. Parameters and buffers become those of the lowest rank that went on the longest.
  void SyncWithLastActive();

 private:
  struct Roster {
    int active = 0;
    int lowest_active = 0;
    bool synced = false;
    bool buffers = false;
  };

  absl::Status CheckLocally() const;
  std::vector<std::string> Describe() const;
  Roster CallRoster(bool active, bool synced, bool buffers);

  const std::shared_ptr<torch::nn::Module> module_;
  const DDPOptions options_;
  const std::shared_ptr<ProcessGroup> group_;
  std::vector<ReducerParameter> parameters_;  // all, each once
  std::vector<ReducerParameter> buffers_;
  std::optional<CoalescedBroadcast> buffer_broadcast_;
  std::shared_ptr<ProcessGroup> batch_norm_group_;
  std::unique_ptr<Reducer> reducer_;
  std::optional<JoinOptions> join_;
  int last_active_ = 0;
};

// While it lives, backward adds to the local gradients and nothing is sent; the first backward
// outside averages the whole sum. Nests. It is the backward that counts, so it may also be held
// around backward alone; a forward inside leaves out the broadcast of buffers. All ranks use it for
// the same backwards. PyTorch: DistributedDataParallel.no_sync.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(Reducer& reducer) : reducer_(reducer) { reducer_.Suspend(); }
  ~NoSyncGuard() { reducer_.Resume(); }
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  Reducer& reducer_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_REPLICA_H_
