// What a model's output means, which its shape alone does not say.
#ifndef MEDFUSION_METRICS_SCORE_KIND_H_
#define MEDFUSION_METRICS_SCORE_KIND_H_

namespace medfusion {

enum class ScoreKind {
  // Of the positive class, in 0..1: [N], [N, 1], or [N, 2] of which column 1 counts.
  kProbability,
  // Before the sigmoid, [N] or [N, 1], or before the softmax, [N, 2]: column 1 minus column 0
  // counts, whose sigmoid is the softmax's second column, but without its rounding to 0 and 1.
  kLogit,
};

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_SCORE_KIND_H_
