// Counts of (label, prediction) pairs over any number of classes, and the rates that follow.
#ifndef MEDFUSION_METRICS_CONFUSION_MATRIX_H_
#define MEDFUSION_METRICS_CONFUSION_MATRIX_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "medfusion/metrics/metric.h"

namespace medfusion {

struct ConfusionMatrixOptions {
  int64_t num_classes = 2;
  // Samples, or pixels, with this label are not counted; it need not be a class.
  std::optional<int64_t> ignore_label;
};

// Pooled over all samples, or all pixels. State: num_classes^2 counts.
class ConfusionMatrix : public Metric {
 public:
  // Throws std::invalid_argument for fewer than two classes.
  explicit ConfusionMatrix(const ConfusionMatrixOptions& options);

  // `predictions`: scores [N, C, ...] of a floating dtype, whose largest wins (the first of
  // equals), or class numbers [N, ...] of an integer dtype or bool. `labels`: class numbers [N,
  // ...]. N may be 0. Counted on the predictions' device. Refused (Note [Refused updates]): other
  // shapes, labels or predictions that are no class, NaN scores.
  void Update(const at::Tensor& predictions, const at::Tensor& labels);

  int64_t num_classes() const { return options_.num_classes; }
  // Of samples of class `label` that were predicted as class `prediction`.
  int64_t Count(int64_t label, int64_t prediction) const;
  // int64 [label, prediction], a copy on the CPU.
  at::Tensor Matrix() const;

  // The diagonal over all. Undefined without samples.
  MetricResult Accuracy() const;
  // Of one class against all others; undefined as in BinaryClassification.
  MetricResult Sensitivity(int64_t class_number) const;
  MetricResult Specificity(int64_t class_number) const;
  MetricResult Precision(int64_t class_number) const;
  // 2 TP / (2 TP + FP + FN); over pixels this is the pooled Dice coefficient.
  MetricResult F1(int64_t class_number) const;
  // TP / (TP + FP + FN), the Jaccard index.
  MetricResult Iou(int64_t class_number) const;
  // The mean sensitivity of the classes (balanced accuracy).
  MetricResult BalancedAccuracy() const;
  MetricResult MacroF1() const;

  std::string Description() const override;
  // "accuracy", "balanced_accuracy", "macro_f1", and for each class c "sensitivity/c",
  // "specificity/c", "precision/c", "f1/c".
  std::vector<std::pair<std::string, MetricResult>> Results() const override;
  std::unique_ptr<Metric> Clone() const override {
    return std::make_unique<ConfusionMatrix>(*this);
  }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  struct OneVersusRest {
    int64_t true_positives = 0;
    int64_t false_positives = 0;
    int64_t true_negatives = 0;
    int64_t false_negatives = 0;
  };

  void Clear() override;
  // Throws std::out_of_range for a number that is no class.
  OneVersusRest Of(int64_t class_number) const;

  ConfusionMatrixOptions options_;
  std::vector<int64_t> counts_;  // [label, prediction]
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_CONFUSION_MATRIX_H_
