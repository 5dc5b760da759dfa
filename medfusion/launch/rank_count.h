// How many ranks this machine should run.
#ifndef MEDFUSION_LAUNCH_RANK_COUNT_H_
#define MEDFUSION_LAUNCH_RANK_COUNT_H_

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace medfusion {

// The cores that this process may use, at least 1.
int NumCores();

// The GPUs that ranks of this machine would see, without touching CUDA: those of
// CUDA_VISIBLE_DEVICES, or /dev/nvidia0, 1 ...; 0 in a build without CUDA.
int NumGpus();

// "auto" is one rank for each GPU, and without any min(2, cores); else a number from 1 to 1024.
// InvalidArgument, quoting `text`, for anything else.
absl::StatusOr<int> ParseRankCount(std::string_view text);

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_RANK_COUNT_H_
