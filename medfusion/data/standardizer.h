// Features shifted and scaled to mean 0 and standard deviation 1, by statistics of the training
// rows alone.
#ifndef MEDFUSION_DATA_STANDARDIZER_H_
#define MEDFUSION_DATA_STANDARDIZER_H_

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace medfusion {

// y = (x - mean) / std for each column, with the population's std (divided by the number of rows,
// as in scikit-learn's StandardScaler). Immutable; threads may share it. Not collective.
class Standardizer {
 public:
  // Statistics over the given rows of `features`, [N, F], floating point, on the CPU, in float64.
  // NaN (a missing value) is left out of them. A column that is constant over the rows, or missing
  // in all of them (mean 0), gets std 1 and is listed by constant_columns(). InvalidArgument: no
  // rows, a row out of range, an infinite value, another shape or dtype.
  static absl::StatusOr<Standardizer> Fit(const at::Tensor& features, std::span<const size_t> rows);

  // A standardizer from what state() returned. InvalidArgument when a tensor is missing, shapes are
  // not [F] both, a value is not finite or a std is not positive.
  static absl::StatusOr<Standardizer> FromState(const std::map<std::string, at::Tensor>& state);

  // A new tensor of the shape, dtype and device of `features`, [N, F] with the F of Fit. NaN
  // becomes 0, the training mean. Throws c10::Error when F differs.
  at::Tensor Apply(const at::Tensor& features) const;

  // {"mean": [F], "std": [F]}, float64 on the CPU: what a checkpoint stores.
  std::map<std::string, at::Tensor> state() const;

  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& std() const { return std_; }

  // The columns whose std was set to 1, ascending; they carry no information. Empty after
  // FromState.
  const std::vector<int64_t>& constant_columns() const { return constant_columns_; }

 private:
  Standardizer(at::Tensor mean, at::Tensor std, std::vector<int64_t> constant_columns);

  at::Tensor mean_;
  at::Tensor std_;
  std::vector<int64_t> constant_columns_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DATA_STANDARDIZER_H_
