#include "medfusion/train/evaluator.h"

namespace medfusion {

BinaryEvaluator::BinaryEvaluator()
    : loss_(metrics_.Add<MeanMeter>("loss")),
      decisions_(metrics_.Add<BinaryClassification>(
          "", BinaryClassificationOptions{.kind = ScoreKind::kLogit})),
      auroc_(metrics_.Add<Auroc>("", AurocOptions{.kind = ScoreKind::kLogit})) {}

void BinaryEvaluator::Update(const at::Tensor& outputs, const at::Tensor& losses,
                             const Batch& batch) {
  loss_.Update(losses);
  decisions_.Update(outputs, batch.targets);
  auroc_.Update(outputs, batch.targets);
}

}  // namespace medfusion
