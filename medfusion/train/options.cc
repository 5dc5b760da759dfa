#include "medfusion/train/options.h"

#include <absl/strings/str_cat.h>

#include <cmath>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

absl::Status AtLeast(std::string_view name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(name), "=", value,
                                                 " is out of range; expected ", least, " or more"));
}

absl::Status NotNegative(std::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(name), "=", value, " is out of range; expected 0 or more"));
}

}  // namespace

absl::StatusOr<OnNonfinite> ParseOnNonfinite(std::string_view text) {
  if (text == "stop") return OnNonfinite::kStop;
  if (text == "skip") return OnNonfinite::kSkip;
  return absl::InvalidArgumentError(
      absl::StrCat("on_nonfinite=", std::string(text), " is unknown; expected stop or skip"));
}

absl::Status TrainOptions::Check() const {
  MEDFUSION_RETURN_IF_ERROR(AtLeast("epochs", epochs, 1));
  MEDFUSION_RETURN_IF_ERROR(AtLeast("batch_size", batch_size, 1));
  MEDFUSION_RETURN_IF_ERROR(AtLeast("accumulate", accumulate, 1));
  MEDFUSION_RETURN_IF_ERROR(NotNegative("learning_rate", learning_rate));
  MEDFUSION_RETURN_IF_ERROR(NotNegative("weight_decay", weight_decay));
  MEDFUSION_RETURN_IF_ERROR(NotNegative("clip_norm", clip_norm));
  MEDFUSION_RETURN_IF_ERROR(AtLeast("seed", seed, 0));
  MEDFUSION_RETURN_IF_ERROR(AtLeast("patience", patience, 0));
  return AtLeast("save_interval", save_interval, 0);
}

std::vector<std::pair<std::string, std::string>> TrainOptions::Settings() const {
  return {{"epochs", absl::StrCat(epochs)},
          {"batch_size", absl::StrCat(batch_size)},
          {"accumulate", absl::StrCat(accumulate)},
          {"learning_rate", absl::StrCat(learning_rate)},
          {"weight_decay", absl::StrCat(weight_decay)},
          {"clip_norm", absl::StrCat(clip_norm)},
          {"seed", absl::StrCat(seed)},
          {"patience", absl::StrCat(patience)},
          {"on_nonfinite", on_nonfinite == OnNonfinite::kStop ? "stop" : "skip"},
          {"save_interval", absl::StrCat(save_interval)},
          {"resume", resume ? "true" : "false"}};
}

}  // namespace medfusion
