// In which floating-point type a model computes while its parameters stay in float32.
#ifndef MEDFUSION_TRAIN_PRECISION_H_
#define MEDFUSION_TRAIN_PRECISION_H_

#include <absl/status/statusor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace medfusion {

enum class Precision {
  kNone,  // as the parameters are
  kBf16,
  kFp16,  // with a scaled loss: see GradScaler
};

// "none", "bf16" or "fp16"; InvalidArgument otherwise.
absl::StatusOr<Precision> ParsePrecision(std::string_view text);
const char* PrecisionName(Precision precision);
// Absent for kNone.
std::optional<at::ScalarType> ComputeDtype(Precision precision);

// While it lives, operators on this thread compute in `dtype` where LibTorch's autocast holds that
// to be safe; nothing without a dtype. PyTorch: torch.autocast.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, std::optional<at::ScalarType> dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType device_;
  const bool active_;
  bool was_enabled_ = false;
  at::ScalarType old_dtype_ = at::kFloat;
};

}  // namespace medfusion

#endif  // MEDFUSION_TRAIN_PRECISION_H_
