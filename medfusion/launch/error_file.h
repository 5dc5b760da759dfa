// How a rank tells its launcher why it failed: torchrun's error file.
//
// torchrun, and SpawnRanks, name a file of its own to each rank in TORCHELASTIC_ERROR_FILE and
// quote from it what the rank wrote. The format is torchrun's:
//   {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp":
//   "1700000000"}}}
#ifndef MEDFUSION_LAUNCH_ERROR_FILE_H_
#define MEDFUSION_LAUNCH_ERROR_FILE_H_

#include <string>
#include <string_view>

namespace medfusion {

// The variable that names the file.
inline constexpr char kErrorFileVariable[] = "TORCHELASTIC_ERROR_FILE";

// Writes `message` to the file that the launcher named; does nothing when there is none. Best
// effort: the process is about to end on another error. Not collective.
void WriteErrorFile(std::string_view message);

// The message in the file at `path`, or empty when there is none that can be read. torchrun's
// own files, which Python ranks write, are understood.
std::string ReadErrorFile(const std::string& path);

}  // namespace medfusion

#endif  // MEDFUSION_LAUNCH_ERROR_FILE_H_
