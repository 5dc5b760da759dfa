#include "medfusion/metrics/metric.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "medfusion/base/status.h"
#include "medfusion/metrics/exact_sum.h"

namespace medfusion {

MetricResult MetricResult::Ratio(int64_t numerator, int64_t denominator, std::string reason) {
  if (denominator == 0) return Undefined(std::move(reason));
  return Of(static_cast<double>(numerator) / static_cast<double>(denominator));
}

MetricResult MetricResult::Mean(const std::vector<MetricResult>& parts) {
  ExactSum sum;
  ExactSum count;
  for (const MetricResult& part : parts) {
    if (!part.defined()) return part;
    sum.Add(part.value());
    count.AddInteger(1);
  }
  if (parts.empty()) return Undefined("there is nothing to average");
  return Of(Quotient(sum, count));
}

std::string MetricResult::ToString() const {
  if (value_.has_value()) return absl::StrFormat("%.4f", *value_);
  return absl::StrCat("undefined (", reason_, ")");
}

void Metric::Reset() {
  Clear();
  status_ = absl::OkStatus();
  refused_ = 0;
}

absl::Status Metric::status() const {
  if (refused_ <= 1) return status_;
  return absl::Status(status_.code(), absl::StrCat(status_.message(), " (", refused_ - 1,
                                                   " further updates were refused)"));
}

void Metric::Refuse(const absl::Status& reason) {
  if (refused_++ == 0) status_ = Annotate(reason, Description());
}

absl::Status Metric::NotMyState() const {
  return absl::InvalidArgumentError(absl::StrCat(
      Description(), ": the state was not made by a metric of this kind with these options"));
}

}  // namespace medfusion
