#include "medfusion/train/precision.h"

#include <ATen/autocast_mode.h>
#include <absl/strings/str_cat.h>

#include <string>

namespace medfusion {

absl::StatusOr<Precision> ParsePrecision(std::string_view text) {
  for (const Precision precision : {Precision::kNone, Precision::kBf16, Precision::kFp16}) {
    if (text == PrecisionName(precision)) return precision;
  }
  return absl::InvalidArgumentError(absl::StrCat("mixed_precision=", std::string(text),
                                                 " is unknown; expected none, bf16 or fp16"));
}

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kNone:
      return "none";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
  }
  return "unknown";
}

std::optional<at::ScalarType> ComputeDtype(Precision precision) {
  switch (precision) {
    case Precision::kNone:
      return std::nullopt;
    case Precision::kBf16:
      return at::kBFloat16;
    case Precision::kFp16:
      return at::kHalf;
  }
  return std::nullopt;
}

AutocastScope::AutocastScope(c10::DeviceType device, std::optional<at::ScalarType> dtype)
    : device_(device), active_(dtype.has_value()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  old_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_dtype(device, *dtype);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // Casts of parameters are kept until the outermost scope ends: the optimizer changes them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

}  // namespace medfusion
