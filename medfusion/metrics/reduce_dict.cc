#include "medfusion/metrics/reduce_dict.h"

#include "medfusion/base/status.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/setup.h"
#include "medfusion/metrics/dict_message.h"
#include "medfusion/metrics/dict_reduction.h"
#include "medfusion/metrics/gather_messages.h"

namespace medfusion {
namespace {

absl::StatusOr<MetricMap> ReduceOver(ProcessGroup* group, const MetricMap& metrics,
                                     const ReduceDictOptions& options) {
  std::vector<std::string> messages;
  MEDFUSION_RETURN_IF_ERROR(
      CatchAsStatus([&] { messages = GatherMessages(group, EncodeDict(metrics, options)); }));
  return ReduceEncodedDicts(messages, metrics);
}

}  // namespace

absl::StatusOr<MetricMap> ReduceDict(const MetricMap& metrics, const ReduceDictOptions& options) {
  return ReduceOver(DefaultGroup().get(), metrics, options);
}

absl::StatusOr<MetricMap> ReduceDict(ProcessGroup& group, const MetricMap& metrics,
                                     const ReduceDictOptions& options) {
  return ReduceOver(&group, metrics, options);
}

}  // namespace medfusion
