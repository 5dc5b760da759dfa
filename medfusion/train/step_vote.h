// What all ranks must know of a batch before they go on to its gradients.
#ifndef MEDFUSION_TRAIN_STEP_VOTE_H_
#define MEDFUSION_TRAIN_STEP_VOTE_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

struct StepVote {
  // The sum of the losses of all ranks' samples.
  double loss_sum = 0;
  // Ranks whose loss is not a finite number, ascending, and what it is on each: "nan", "inf".
  std::vector<int> nonfinite_ranks;
  std::vector<std::string> nonfinite_values;

  bool finite() const { return nonfinite_ranks.empty(); }
  // "nan on rank 1", "nan on rank 0, inf on rank 2".
  std::string Describe() const;
};

// Collective. One small all-reduce before each backward. A rank whose forward failed passes its
// error as `local`: then all ranks return the same error (AgreeOnStatus) instead of waiting for it.
absl::StatusOr<StepVote> VoteOnStep(ProcessGroup& group, const absl::Status& local,
                                    double local_loss_sum);

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_STEP_VOTE_H_
