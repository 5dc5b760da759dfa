// Where a run keeps what it needs to go on after it was ended.
#ifndef MEDFUSION_TRAIN_TRAIN_CHECKPOINT_H_
#define MEDFUSION_TRAIN_TRAIN_CHECKPOINT_H_

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// The state after a whole epoch.
struct TrainCheckpoint {
  int64_t epoch = 0;
  // Numbers and texts, as JSON; its keys are the trainer's.
  std::string metadata;
  std::map<std::string, at::Tensor> tensors;
};

// A place for checkpoints. All functions are collective and give every rank the same Status.
class TrainCheckpointStore {
 public:
  virtual ~TrainCheckpointStore() = default;
  // When it returns OK the checkpoint is safe, and older ones may be gone.
  virtual absl::Status Save(const TrainCheckpoint& checkpoint) = 0;
  // The newest one; nullopt when there is none.
  virtual absl::StatusOr<std::optional<TrainCheckpoint>> LoadLatest() = 0;
  // Forgets all: a new run begins here.
  virtual absl::Status Clear() = 0;
};

// One file per checkpoint, `folder`/epoch_000005.pt, written by rank 0 and synced before it gets
// its name; a crash leaves the one before. The newest two are kept. Rank 0 alone needs the folder:
// it sends what it reads to the others. Python reads a file by torch.load (weights_only). Borrows
// `group`.
std::unique_ptr<TrainCheckpointStore> MakeFileCheckpointStore(std::string folder,
                                                              ProcessGroup& group);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_TRAIN_CHECKPOINT_H_
