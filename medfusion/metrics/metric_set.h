// Metrics over all ranks: every sample counted once, any number of metrics in one exchange.
//
//   MetricSet metrics;
//   auto& loss = metrics.Add<MeanMeter>("loss");
//   auto& decisions = metrics.Add<BinaryClassification>("");
//   auto& auroc = metrics.Add<Auroc>("");
//   for (batches of this rank) {
//     loss.Update(batch_loss, batch_size);
//     decisions.Update(probabilities, labels);
//     auroc.Update(probabilities, labels);
//   }
//   auto results = metrics.Compute(*group);  // {"loss": ..., "accuracy": ..., ..., "auroc": ...}
#ifndef MEDFUSION_METRICS_METRIC_SET_H_
#define MEDFUSION_METRICS_METRIC_SET_H_

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/metrics/metric.h"

namespace medfusion {

class ProcessGroup;

using MetricResults = std::map<std::string, MetricResult>;

// Collective. Adds every rank's `locals` to `merged`, which must be as many empty metrics of the
// same kinds, in one exchange: one all-gather where each rank's states fit in 2 kB, else two.
// `group` may be null: a process alone. `locals` are only read. The same error on all ranks as of
// MergeEncodedMetrics, or Internal when the network failed.
absl::Status MergeRanks(ProcessGroup* group, std::span<const Metric* const> locals,
                        std::span<Metric* const> merged);

// Collective. A new metric that holds the samples of all ranks; `local` is left as it is. The copy
// has the typed accessors: `MergeRanks(group, decisions)->Sensitivity()`.
template <typename M>
absl::StatusOr<M> MergeRanks(ProcessGroup& group, const M& local) {
  M merged = local;
  merged.Reset();
  const Metric* from = &local;
  Metric* to = &merged;
  const absl::Status status = MergeRanks(&group, {&from, 1}, {&to, 1});
  if (!status.ok()) return status;
  return merged;
}

// Metrics that are computed together. Owns them. Not thread safe.
class MetricSet {
 public:
  MetricSet() = default;
  MetricSet(MetricSet&&) = default;
  MetricSet& operator=(MetricSet&&) = default;

  // Makes an M from `arguments`; the reference is good as long as the set is. The results are
  // called `name`, or `name`/result where M gives several, or as M calls them when `name` is empty.
  // The same calls on all ranks.
  template <typename M, typename... Arguments>
  M& Add(std::string name, Arguments&&... arguments) {
    auto metric = std::make_unique<M>(std::forward<Arguments>(arguments)...);
    M& reference = *metric;
    metrics_.emplace_back(std::move(name), std::move(metric));
    return reference;
  }

  // Collective. The results of all metrics over all ranks' samples, the same bits on every rank.
  // May be called at any time and again: the local metrics are only read. Errors as of MergeRanks;
  // InvalidArgument when two results have one name. Over the default group when none is given, or
  // alone when there is none.
  absl::StatusOr<MetricResults> Compute(ProcessGroup& group) const;
  absl::StatusOr<MetricResults> Compute() const;

  // Forgets all samples, keeps the metrics.
  void Reset();

  // The metrics' states in the order of Add, for a checkpoint of this rank; Merge adds such states
  // to the metrics (after Reset(), to restore). InvalidArgument unless the set that saved had the
  // same metrics.
  std::vector<MetricState> State() const;
  absl::Status Merge(const std::vector<MetricState>& states);

 private:
  absl::StatusOr<MetricResults> ComputeOver(ProcessGroup* group) const;

  std::vector<std::pair<std::string, std::unique_ptr<Metric>>> metrics_;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_METRIC_SET_H_
