// The area under the ROC curve, exact: from all scores, by integers.
#ifndef MEDFUSION_METRICS_AUROC_H_
#define MEDFUSION_METRICS_AUROC_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "medfusion/metrics/metric.h"
#include "medfusion/metrics/score_kind.h"

namespace medfusion {

struct AurocOptions {
  ScoreKind kind = ScoreKind::kProbability;
};

// The share of (positive, negative) pairs in which the positive sample has the higher score; a tie
// counts one half (Mann-Whitney's U; sklearn.metrics.roc_auc_score gives the same area up to its
// rounding). Twice U is a whole number, so the result has the same bits however the samples are
// spread over ranks. State: 8 bytes per sample. A merge over ranks sends 4 bytes per sample where
// all of a rank's scores are exact in float32, else 8, and holds all ranks' samples on every rank.
class Auroc : public Metric {
 public:
  explicit Auroc(const AurocOptions& options = {}) : options_(options) {}

  // `scores` [N], [N, 1] or [N, 2] (ScoreKind), `labels` [N] or [N, 1] of 0 and 1; N may be 0.
  // Infinite logits are ordered as numbers are. Refused (Note [Refused updates]): other shapes or
  // labels, NaN, and probabilities outside 0..1.
  void Update(const at::Tensor& scores, const at::Tensor& labels);
  // One sample that is already a number.
  void Update(double score, bool positive);

  // Undefined unless there are positive and negative labels. Takes n log n steps.
  MetricResult Value() const;

  std::string Description() const override;
  // "auroc".
  std::vector<std::pair<std::string, MetricResult>> Results() const override {
    return {{"auroc", Value()}};
  }
  std::unique_ptr<Metric> Clone() const override { return std::make_unique<Auroc>(*this); }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  void Clear() override;

  AurocOptions options_;
  std::vector<double> positives_;
  std::vector<double> negatives_;
};

// One-vs-rest AUROC of each class and their plain mean (sklearn's multi_class="ovr",
// average="macro"). State: 8 * num_classes bytes per sample.
class MulticlassAuroc : public Metric {
 public:
  // Throws std::invalid_argument for fewer than two classes.
  explicit MulticlassAuroc(int64_t num_classes);

  // `scores` [N, num_classes], probabilities or logits of the classes (only their order within a
  // class counts: logits that are not normalised over the classes rank otherwise than
  // probabilities); `labels` [N] or [N, 1]. Refused (Note [Refused updates]): other shapes or
  // labels, NaN.
  void Update(const at::Tensor& scores, const at::Tensor& labels);

  MetricResult Value(int64_t class_number) const;
  // Undefined, naming the first such class, when one is undefined.
  MetricResult MacroValue() const;

  std::string Description() const override;
  // "macro_auroc", "auroc/0", "auroc/1" and so on.
  std::vector<std::pair<std::string, MetricResult>> Results() const override;
  std::unique_ptr<Metric> Clone() const override {
    return std::make_unique<MulticlassAuroc>(*this);
  }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  void Clear() override;

  std::vector<Auroc> classes_;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_AUROC_H_
