#include "medfusion/metrics/metric_set.h"

#include <absl/strings/str_cat.h>

#include "medfusion/base/status.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/setup.h"
#include "medfusion/metrics/gather_messages.h"
#include "medfusion/metrics/metric_merge.h"

namespace medfusion {
namespace {

std::string ResultName(const std::string& name, const std::string& result) {
  if (name.empty() || result.empty()) return name + result;
  return absl::StrCat(name, "/", result);
}

}  // namespace

absl::Status MergeRanks(ProcessGroup* group, std::span<const Metric* const> locals,
                        std::span<Metric* const> merged) {
  std::vector<std::string> messages;
  MEDFUSION_RETURN_IF_ERROR(
      CatchAsStatus([&] { messages = GatherMessages(group, EncodeMetrics(locals)); }));
  return MergeEncodedMetrics(messages, merged);
}

absl::StatusOr<MetricResults> MetricSet::Compute(ProcessGroup& group) const {
  return ComputeOver(&group);
}

absl::StatusOr<MetricResults> MetricSet::Compute() const {
  return ComputeOver(DefaultGroup().get());
}

absl::StatusOr<MetricResults> MetricSet::ComputeOver(ProcessGroup* group) const {
  std::vector<const Metric*> locals;
  std::vector<std::unique_ptr<Metric>> copies;
  std::vector<Metric*> merged;
  for (const auto& [name, metric] : metrics_) {
    locals.push_back(metric.get());
    copies.push_back(metric->Clone());
    copies.back()->Reset();
    merged.push_back(copies.back().get());
  }
  MEDFUSION_RETURN_IF_ERROR(MergeRanks(group, locals, merged));
  MetricResults results;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    for (const auto& [name, result] : merged[i]->Results()) {
      const std::string full = ResultName(metrics_[i].first, name);
      if (!results.emplace(full, result).second) {
        return absl::InvalidArgumentError(absl::StrCat("two results are called \"", full,
                                                       "\"; give their metrics different names"));
      }
    }
  }
  return results;
}

void MetricSet::Reset() {
  for (auto& [name, metric] : metrics_) metric->Reset();
}

std::vector<MetricState> MetricSet::State() const {
  std::vector<MetricState> states;
  for (const auto& [name, metric] : metrics_) states.push_back(metric->State());
  return states;
}

absl::Status MetricSet::Merge(const std::vector<MetricState>& states) {
  if (states.size() != metrics_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the saved set has ", states.size(),
                                                   " metrics, this one has ", metrics_.size()));
  }
  // Tried on copies first, so that an error leaves all metrics as they were.
  std::vector<std::unique_ptr<Metric>> merged;
  for (size_t i = 0; i < states.size(); ++i) {
    merged.push_back(metrics_[i].second->Clone());
    const absl::Status status = merged.back()->Merge(states[i]);
    if (!status.ok())
      return Annotate(status, absl::StrCat("metric ", i, " \"", metrics_[i].first, "\""));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    MEDFUSION_RETURN_IF_ERROR(metrics_[i].second->Merge(states[i]));
  }
  return absl::OkStatus();
}

}  // namespace medfusion
