// Log lines, without glog in a header: LibTorch and glog both define LOG and CHECK.
#ifndef MEDFUSION_BASE_LOG_H_
#define MEDFUSION_BASE_LOG_H_

#include <string_view>

namespace medfusion {

// Each writes one line to glog at the named severity, with the source line of the caller. Thread
// safe, not collective.
void LogInfo(std::string_view text, const char* file = __builtin_FILE(),
             int line = __builtin_LINE());
void LogWarning(std::string_view text, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());
void LogError(std::string_view text, const char* file = __builtin_FILE(),
              int line = __builtin_LINE());

}  // namespace medfusion

#endif  // MEDFUSION_BASE_LOG_H_
