// A named number to be reduced over ranks: a double, an integer or a tensor.
#ifndef MEDFUSION_METRICS_METRIC_VALUE_H_
#define MEDFUSION_METRICS_METRIC_VALUE_H_

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace medfusion {

class MetricValue {
 public:
  MetricValue() : value_(0.0) {}
  template <std::floating_point T>
  MetricValue(T value)
      : value_(static_cast<double>(value)) {}  // NOLINT: implicit, for {{"loss", 0.5}}
  // Throws std::out_of_range for an unsigned value beyond int64.
  template <std::integral T>
  MetricValue(T value) : value_(CheckedInteger(value)) {}      // NOLINT: implicit
  MetricValue(at::Tensor value) : value_(std::move(value)) {}  // NOLINT: implicit

  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_int64() const { return std::holds_alternative<int64_t>(value_); }
  bool is_tensor() const { return std::holds_alternative<at::Tensor>(value_); }

  // The number; an integer beyond 2^53 is rounded. Throws c10::Error for a tensor of more than one
  // element.
  double AsDouble() const;
  // The integer. Throws std::bad_variant_access for a double, c10::Error for a tensor that is no
  // single integer.
  int64_t AsInt64() const;
  // The tensor, or a number as a scalar tensor (float64 or int64, on the CPU).
  at::Tensor AsTensor() const;

 private:
  template <typename T>
  static int64_t CheckedInteger(T value) {
    if (!std::in_range<int64_t>(value)) ThrowOutOfRange(static_cast<uint64_t>(value));
    return static_cast<int64_t>(value);
  }
  static int64_t CheckedInteger(bool value) { return value ? 1 : 0; }
  [[noreturn]] static void ThrowOutOfRange(uint64_t value);

  std::variant<double, int64_t, at::Tensor> value_;
};

using MetricMap = std::map<std::string, MetricValue>;

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_METRIC_VALUE_H_
