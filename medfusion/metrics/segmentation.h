// Dice and IoU of segmentations: per case, as clinical papers report them, and pooled.
#ifndef MEDFUSION_METRICS_SEGMENTATION_H_
#define MEDFUSION_METRICS_SEGMENTATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "medfusion/metrics/exact_sum.h"
#include "medfusion/metrics/metric.h"

namespace medfusion {

struct SegmentationOptions {
  // Background included: two for one kind of lesion.
  int64_t num_classes = 2;
  // Left out of the means over classes; std::nullopt when every class counts.
  std::optional<int64_t> background = 0;
  // Pixels with this label are not counted; it need not be a class.
  std::optional<int64_t> ignore_label;
};

// A case is one element of the batch: an image or a volume. A case where a class is neither
// labelled nor predicted says nothing about that class and is left out of its mean. Means over
// cases are summed without rounding (ExactSum), so that they too do not depend on who saw which
// case. State: per class four counts and a few doubles.
class SegmentationMetrics : public Metric {
 public:
  // Throws std::invalid_argument for fewer than two classes.
  explicit SegmentationMetrics(const SegmentationOptions& options);

  // `predictions`: scores [N, C, ...] or class numbers [N, ...]; for one sigmoid channel pass
  // `(probabilities > 0.5)` as bool [N, ...] with two classes. `labels`: class numbers [N, ...]. As
  // in ConfusionMatrix::Update.
  void Update(const at::Tensor& predictions, const at::Tensor& labels);

  // The mean over cases of 2 TP / (2 TP + FP + FN), and of TP / (TP + FP + FN). Undefined where no
  // case has the class.
  MetricResult Dice(int64_t class_number) const;
  MetricResult Iou(int64_t class_number) const;
  // The same ratios of the pixels of all cases together.
  MetricResult PooledDice(int64_t class_number) const;
  MetricResult PooledIou(int64_t class_number) const;
  // Means over the classes but the background; a class that no case has is left out. Undefined when
  // none has any.
  MetricResult MeanDice() const;
  MetricResult MeanIou() const;
  // Cases in which the class was labelled or predicted.
  int64_t Cases(int64_t class_number) const { return Of(class_number).cases; }

  std::string Description() const override;
  // "dice", "iou" (the means), and for each class c but the background "dice/c", "iou/c",
  // "pooled_dice/c".
  std::vector<std::pair<std::string, MetricResult>> Results() const override;
  std::unique_ptr<Metric> Clone() const override {
    return std::make_unique<SegmentationMetrics>(*this);
  }
  MetricState State() const override;
  absl::Status Merge(const MetricState& state) override;

 private:
  struct ClassCounts {
    int64_t true_positives = 0;
    int64_t false_positives = 0;
    int64_t false_negatives = 0;
    int64_t cases = 0;
    ExactSum dice;
    ExactSum iou;
  };

  void Clear() override;
  // Throws std::out_of_range for a number that is no class.
  const ClassCounts& Of(int64_t class_number) const;
  MetricResult MeanOfClasses(MetricResult (SegmentationMetrics::*value)(int64_t) const) const;
  static void AddCase(ClassCounts& counts, int64_t tp, int64_t fp, int64_t fn);

  SegmentationOptions options_;
  std::vector<ClassCounts> classes_;
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_SEGMENTATION_H_
