#include "medfusion/metrics/metric_value.h"

#include <ATen/ops/scalar_tensor.h>
#include <absl/strings/str_cat.h>
#include <c10/util/Exception.h>

#include <stdexcept>

namespace medfusion {

double MetricValue::AsDouble() const {
  if (is_double()) return std::get<double>(value_);
  if (is_int64()) return static_cast<double>(std::get<int64_t>(value_));
  return std::get<at::Tensor>(value_).item().toDouble();
}

int64_t MetricValue::AsInt64() const {
  if (!is_tensor()) return std::get<int64_t>(value_);
  const at::Tensor& tensor = std::get<at::Tensor>(value_);
  TORCH_CHECK(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true),
              "the metric is a tensor of ", tensor.scalar_type(), ", not of integers");
  return tensor.item().toLong();
}

at::Tensor MetricValue::AsTensor() const {
  if (is_double()) return at::scalar_tensor(std::get<double>(value_), at::kDouble);
  if (is_int64()) return at::scalar_tensor(std::get<int64_t>(value_), at::kLong);
  return std::get<at::Tensor>(value_);
}

void MetricValue::ThrowOutOfRange(uint64_t value) {
  throw std::out_of_range(absl::StrCat("metric value ", value, " is beyond the range of int64"));
}

}  // namespace medfusion
