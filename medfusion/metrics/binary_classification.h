// Accuracy, sensitivity, specificity, precision and F1 of a two-class decision at a threshold.
#ifndef MEDFUSION_METRICS_BINARY_CLASSIFICATION_H_
#define MEDFUSION_METRICS_BINARY_CLASSIFICATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "medfusion/metrics/metric.h"
#include "medfusion/metrics/score_kind.h"

namespace medfusion {

struct BinaryClassificationOptions {
  ScoreKind kind = ScoreKind::kProbability;
  // A probability, strictly between 0 and 1, whatever the kind: a threshold t on logits compares
  // them with log(t / (1 - t)).
  double threshold = 0.5;
};

// Counts decisions. A sample is predicted positive when its score is above the threshold; at the
// threshold it is negative, as argmax decides a tie. Label 1 is positive, 0 negative. State: four
// counts.
class BinaryClassification : public Metric {
 public:
  // Throws std::invalid_argument for a threshold that is not between 0 and 1.
  explicit BinaryClassification(const BinaryClassificationOptions& options = {});

  // `scores` [N], [N, 1] or [N, 2] (ScoreKind), `labels` [N] or [N, 1] of 0 and 1, any dtype and
  // device; N may be 0. Refused (Note [Refused updates]): other shapes or labels, NaN, and
  // probabilities outside 0..1.
  void Update(const at::Tensor& scores, const at::Tensor& labels);

  int64_t true_positives() const { return counts_.true_positives; }
  int64_t false_positives() const { return counts_.false_positives; }
  int64_t true_negatives() const { return counts_.true_negatives; }
  int64_t false_negatives() const { return counts_.false_negatives; }

  // (TP + TN) / all. Undefined without samples.
  MetricResult Accuracy() const;
  // TP / (TP + FN), also called recall. Undefined without positive labels.
  MetricResult Sensitivity() const;
  // TN / (TN + FP). Undefined without negative labels.
  MetricResult Specificity() const;
  // TP / (TP + FP), also called positive predictive value. Undefined without positive predictions.
  MetricResult Precision() const;
  // 2 TP / (2 TP + FP + FN). Undefined when nothing is positive, neither label nor prediction.
  MetricResult F1() const;

  std::string Description() const override;
  // "accuracy", "sensitivity", "specificity", "precision", "f1".
  std::vector<std::pair<std::string, MetricResult>> Results() const override;
  std::unique_ptr<Metric> Clone() const override {
    return std::make_unique<BinaryClassification>(*this);
  }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  struct Counts {
    int64_t true_positives = 0;
    int64_t false_positives = 0;
    int64_t true_negatives = 0;
    int64_t false_negatives = 0;
  };

  void Clear() override { counts_ = {}; }

  BinaryClassificationOptions options_;
  double cut_;  // the threshold on the scores' own scale
  Counts counts_;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_BINARY_CLASSIFICATION_H_
