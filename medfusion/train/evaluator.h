// Which metrics a run computes from the outputs of its model.
#ifndef MEDFUSION_TRAIN_EVALUATOR_H_
#define MEDFUSION_TRAIN_EVALUATOR_H_

#include <ATen/core/Tensor.h>

#include "medfusion/data/batch.h"
#include "medfusion/metrics/auroc.h"
#include "medfusion/metrics/binary_classification.h"
#include "medfusion/metrics/meters.h"
#include "medfusion/metrics/metric_set.h"

namespace medfusion {

// Gathers this rank's samples of one pass over a part of the data.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // `outputs` as the model gave them, `losses` [n] of the batch's n samples; no grad. Not
  // collective.
  virtual void Update(const at::Tensor& outputs, const at::Tensor& losses, const Batch& batch) = 0;
  // A result called "loss" is there always: early stopping follows it.
  virtual const MetricSet& metrics() const = 0;
};

// For logits [n, 2] of two classes: loss, accuracy, sensitivity, specificity, precision, f1, auroc.
class BinaryEvaluator : public Evaluator {
 public:
  BinaryEvaluator();
  void Update(const at::Tensor& outputs, const at::Tensor& losses, const Batch& batch) override;
  const MetricSet& metrics() const override { return metrics_; }

 private:
  MetricSet metrics_;
  MeanMeter& loss_;
  BinaryClassification& decisions_;
  Auroc& auroc_;
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_EVALUATOR_H_
