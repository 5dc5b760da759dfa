#include "medfusion/train/step_vote.h"

#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>

#include <cmath>

#include "medfusion/base/status.h"
#include "medfusion/distributed/agreement.h"

namespace medfusion {
namespace {

// A rank's place in the vector; the sum over ranks leaves each as it was.
enum Mark { kFinite = 0, kNan = 1, kInfinite = 2, kFailed = 3 };

}  // namespace

std::string StepVote::Describe() const {
  std::string text;
  for (size_t i = 0; i < nonfinite_ranks.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", nonfinite_values[i], " on rank ",
                    nonfinite_ranks[i]);
  }
  return text;
}

absl::StatusOr<StepVote> VoteOnStep(ProcessGroup& group, const absl::Status& local,
                                    double local_loss_sum) {
  Mark mark = kFinite;
  if (!local.ok()) {
    mark = kFailed;
  } else if (!std::isfinite(local_loss_sum)) {
    mark = std::isnan(local_loss_sum) ? kNan : kInfinite;
  }
  const int size = group.size();
  at::Tensor ballot = at::zeros({size + 1}, at::kDouble);
  double* values = ballot.mutable_data_ptr<double>();
  values[group.rank()] = mark;
  values[size] = mark == kFinite ? local_loss_sum : 0;
  ballot = ballot.to(group.device());
  group.AllReduce(ballot)->Wait();
  ballot = ballot.cpu();
  values = ballot.mutable_data_ptr<double>();

  StepVote vote;
  vote.loss_sum = values[size];
  bool failed = false;
  for (int r = 0; r < size; ++r) {
    const int other = static_cast<int>(values[r]);
    failed |= other == kFailed;
    if (other != kNan && other != kInfinite) continue;
    vote.nonfinite_ranks.push_back(r);
    vote.nonfinite_values.push_back(other == kNan ? "nan" : "inf");
  }
  if (failed) MEDFUSION_RETURN_IF_ERROR(AgreeOnStatus(group, local));
  return vote;
}

}  // namespace medfusion
