#include "tools/bench/train_step/memory_use.h"

#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace medfusion::bench {

std::map<std::string, double> MemoryUse() {
  std::map<std::string, double> use;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  use["maxrss_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string key;
    double kibibytes = 0;
    fields >> key >> kibibytes;
    if (key != "VmHWM:" && key != "VmRSS:" && key != "RssAnon:") continue;
    key.pop_back();
    std::transform(key.begin(), key.end(), key.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    use[key + "_mb"] = kibibytes / 1024;
  }
  return use;
}

}  // namespace medfusion::bench
