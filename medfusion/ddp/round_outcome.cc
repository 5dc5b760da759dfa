#include "medfusion/ddp/round_outcome.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "medfusion/base/log.h"
#include "medfusion/distributed/agreement.h"

namespace medfusion {
namespace {

// Enough to see what is wrong without a page of text.
constexpr size_t kNamesInMessages = 20;

}  // namespace

std::string QuoteNames(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesInMessages);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", names[i], "'");
  }
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

void AgreeOnTrouble(ProcessGroup& group, RoundOutcome outcome, const std::string& missing) {
  if (AllRanks(group, outcome == RoundOutcome::kAborted)) {
    LogWarning(
        "backward failed on every rank; its gradients are void, call zero_grad before the next");
    return;
  }
  absl::Status local;
  if (outcome == RoundOutcome::kMissing) {
    local = absl::FailedPreconditionError(absl::StrCat(
        "no gradient for ", missing,
        "; leave what does not take part in the loss out of the module, set requires_grad(false), "
        "or pass find_unused_parameters"));
  } else if (outcome == RoundOutcome::kAborted) {
    local = absl::AbortedError("backward failed there");
  }
  const absl::Status agreed = AgreeOnStatus(group, local);
  throw GradientError(absl::StrCat("the gradients of the last backward were not averaged: ",
                                   std::string(agreed.message())));
}

}  // namespace medfusion
