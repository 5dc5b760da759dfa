// What the kernel says about this process's memory.
#ifndef MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MEMORY_USE_H_
#define MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MEMORY_USE_H_

#include <map>
#include <string>

namespace medfusion::bench {

// In MiB: "maxrss_mb" (peak, as getrusage counts), "vmhwm_mb" (peak), "vmrss_mb" (now),
// "rssanon_mb" (now, without files and shared memory).
std::map<std::string, double> MemoryUse();

}  // namespace medfusion::bench

#endif  // MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MEMORY_USE_H_
