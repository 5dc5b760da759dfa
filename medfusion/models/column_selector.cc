#include "medfusion/models/column_selector.h"

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace medfusion {

ColumnSelector::ColumnSelector(const std::vector<int64_t>& columns)
    : size_(static_cast<int64_t>(columns.size())), last_(-1) {
  TORCH_CHECK(!columns.empty(), "a group of columns is empty");
  for (const int64_t column : columns) {
    TORCH_CHECK(column >= 0, "column ", column, " of a group is negative");
    last_ = std::max(last_, column);
    if (!runs_.empty() && runs_.back().first + runs_.back().second == column) {
      ++runs_.back().second;
    } else {
      runs_.emplace_back(column, 1);
    }
  }
}

at::Tensor ColumnSelector::Select(const at::Tensor& x) const {
  TORCH_CHECK(x.dim() == 2 && x.size(1) > last_, "features have the shape ", x.sizes(),
              "; a group takes column ", last_, ", so expected [*, ", last_ + 1, " or more]");
  std::vector<at::Tensor> parts;
  for (const auto& [first, length] : runs_) parts.push_back(x.narrow(1, first, length));
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

}  // namespace medfusion
