// The smallest use of metrics: twelve samples dealt to the ranks, evaluated as if they had been one
// process's. Run it alone, or on three ranks with the same figures:
//   export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
//   for rank in 0 1 2; do RANK=$rank bazel-bin/examples/metrics/metrics & done; wait
#include <ATen/ops/tensor.h>

#include <cstdio>

#include "medfusion/distributed/distributed.h"
#include "medfusion/metrics/metrics.h"

namespace {

absl::Status Evaluate(int rank, int world_size) {
  const at::Tensor probabilities =
      at::tensor({0.91, 0.80, 0.15, 0.65, 0.40, 0.55, 0.30, 0.75, 0.05, 0.62, 0.48, 0.22});
  const at::Tensor labels = at::tensor({1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0});

  medfusion::MetricSet metrics;
  auto& decisions = metrics.Add<medfusion::BinaryClassification>("");
  auto& auroc = metrics.Add<medfusion::Auroc>("");
  for (int64_t sample = rank; sample < labels.size(0); sample += world_size) {
    decisions.Update(probabilities.narrow(0, sample, 1), labels.narrow(0, sample, 1));
    auroc.Update(probabilities.narrow(0, sample, 1), labels.narrow(0, sample, 1));
  }
  const auto results = metrics.Compute();  // collective: every rank gets the same figures
  if (!results.ok()) return results.status();

  const auto average = medfusion::ReduceDict({{"loss", 0.5 + rank}, {"rank", rank}});
  if (!average.ok()) return average.status();

  if (!medfusion::IsMainProcess()) return absl::OkStatus();
  for (const auto& [name, result] : *results) {
    std::printf("%-12s %s\n", name.c_str(), result.ToString().c_str());
  }
  std::printf("averages over %d ranks: loss %.3f, rank %.3f\n", world_size,
              average->at("loss").AsDouble(), average->at("rank").AsDouble());
  return absl::OkStatus();
}

}  // namespace

int main() {
  const auto context = medfusion::SetupDistributed();
  absl::Status status = context.status();
  if (status.ok()) status = Evaluate(context->rank, context->world_size);
  status.Update(medfusion::CleanupDistributed());
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
