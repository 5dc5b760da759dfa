// Decisions that all ranks take together.
#ifndef MEDFUSION_DISTRIBUTED_AGREEMENT_H_
#define MEDFUSION_DISTRIBUTED_AGREEMENT_H_

#include <absl/status/status.h>

#include "medfusion/distributed/process_group.h"

namespace medfusion {

// Collective. OK when every rank passes OK; else the same error on all ranks, with the code of the
// first failing rank and a text that quotes every failing rank ("rank 2: ..."; equal texts are
// joined). A rank that fails alone would leave the others waiting: pass the local result of
// anything that can fail on one rank through here before the next collective.
absl::Status AgreeOnStatus(ProcessGroup& group, const absl::Status& local);

// Collective. True on all ranks when it is true on any (all) of them.
bool AnyRank(ProcessGroup& group, bool local);
bool AllRanks(ProcessGroup& group, bool local);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_AGREEMENT_H_
