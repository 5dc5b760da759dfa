// Columns of a matrix, by position.
#ifndef MEDFUSION_MODELS_COLUMN_SELECTOR_H_
#define MEDFUSION_MODELS_COLUMN_SELECTOR_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace medfusion {

// Remembers columns as runs of neighbours, so that a run is a view: a tensor of indices would have
// to be a buffer, and Module::to(dtype) would turn it into floating point.
class ColumnSelector {
 public:
  // Throws c10::Error when there are no columns or one is negative.
  explicit ColumnSelector(const std::vector<int64_t>& columns);

  // [N, F] to [N, number of columns], in the order given; a view when they are neighbours. Throws
  // c10::Error when F is too small.
  at::Tensor Select(const at::Tensor& x) const;

  int64_t size() const { return size_; }
  int64_t last() const { return last_; }  // the largest column

 private:
  std::vector<std::pair<int64_t, int64_t>> runs_;  // first column, length
  int64_t size_;
  int64_t last_;
};

}  // namespace medfusion

#endif  // MEDFUSION_MODELS_COLUMN_SELECTOR_H_
