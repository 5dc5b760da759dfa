// How a rank's part in averaging gradients went, and what the ranks make of it together.
#ifndef MEDFUSION_DDP_ROUND_OUTCOME_H_
#define MEDFUSION_DDP_ROUND_OUTCOME_H_

#include <stdexcept>
#include <string>
#include <vector>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Gradients could not be averaged: a parameter got none, or backward failed on some ranks. Thrown
// on all ranks with the same text where they can know. The ranks are in step again afterwards: call
// zero_grad and go on, or end.
class GradientError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class RoundOutcome {
  kComplete,  // here; another rank may have had trouble
  kMissing,   // some parameters got no gradient
  kAborted,   // backward threw
};

// Names in quotes, at most 20.
std::string QuoteNames(const std::vector<std::string>& names);

// Collective, once any rank's outcome is not kComplete. Warns and returns when backward failed on
// all ranks: the step is lost, but they are in step. Else throws GradientError with every rank's
// trouble; `missing` names what this rank lacked.
void AgreeOnTrouble(ProcessGroup& group, RoundOutcome outcome, const std::string& missing);

}  // namespace medfusion

#endif  // MEDFUSION_DDP_ROUND_OUTCOME_H_
