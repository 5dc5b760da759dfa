#include "medfusion/launch/rank_count.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace medfusion {

int NumCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

int NumGpus() {
#ifdef MEDFUSION_WITH_CUDA
  int present = 0;
  while (access(absl::StrCat("/dev/nvidia", present).c_str(), F_OK) == 0) ++present;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return present;
  int named = 0;
  for (const auto& device : absl::StrSplit(visible, ',', absl::SkipWhitespace())) {
    if (device == "-1") break;  // CUDA's way to end the list
    ++named;
  }
  return named;
#else
  return 0;
#endif
}

absl::StatusOr<int> ParseRankCount(std::string_view text) {
  if (text == "auto") {
    const int gpus = NumGpus();
    return gpus > 0 ? gpus : std::min(2, NumCores());
  }
  int count = 0;
  if (absl::SimpleAtoi(std::string(text), &count) && count >= 1 && count <= 1024) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is no number of ranks; expected auto or 1..1024"));
}

}  // namespace medfusion
