// Reads predictions and labels out of tensors, or says what is wrong with them.
#ifndef MEDFUSION_METRICS_INPUTS_H_
#define MEDFUSION_METRICS_INPUTS_H_

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "medfusion/metrics/score_kind.h"

namespace medfusion {

// All functions here: tensors of any device, with or without grad; copied to the CPU.
// InvalidArgument names the value, its place in the update and what to do. Not collective.

// Any shape, any real dtype, flattened. NaN passes.
absl::StatusOr<std::vector<double>> ReadNumbers(const at::Tensor& values);

// One number per sample that grows with the evidence for the positive class, from scores
// [N], [N, 1] or [N, 2] as ScoreKind says. NaN is an error that tells how many there are.
absl::StatusOr<std::vector<double>> ReadPositiveScores(const at::Tensor& scores, ScoreKind kind);

// The class of each sample, 0..num_classes-1, from labels [N] or [N, 1] of any integer, bool or
// floating dtype (as binary losses want them), whole numbers.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const at::Tensor& labels, int64_t num_classes);

// InvalidArgument unless there are as many scores as labels.
absl::Status CheckSameLength(size_t scores, size_t labels);

// How often, in each of the N cases of a batch, each class was predicted as each: int64 [N, label,
// prediction] on the CPU. `predictions` are scores [N, C, ...] of a floating dtype, whose largest
// wins (the first of equals), or class numbers of labels' shape (integer or bool). `labels` are
// class numbers [N, ...] (integer or bool). Elements labelled `ignore_label` are left out.
absl::StatusOr<at::Tensor> CountClassPairs(const at::Tensor& predictions, const at::Tensor& labels,
                                           int64_t num_classes,
                                           std::optional<int64_t> ignore_label);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_INPUTS_H_
