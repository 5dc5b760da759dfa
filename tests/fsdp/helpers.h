// What the FSDP tests share besides models.
#ifndef MEDFUSION_TESTS_FSDP_HELPERS_H_
#define MEDFUSION_TESTS_FSDP_HELPERS_H_

#include <torch/torch.h>

#include "medfusion/fsdp/options.h"
#include "tests/fsdp/models.h"
#include "tests/testing/error_of.h"

namespace medfusion::testing {

inline FSDPOptions EveryModuleAUnit() {
  FSDPOptions options;
  options.min_num_params = 0;
  return options;
}

// A batch [4, kFeatures] in float64 that differs by rank.
inline at::Tensor Input(int rank) {
  return (torch::arange(4 * kFeatures, at::kDouble).view({4, kFeatures}) + 5.0 * rank).sin();
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_FSDP_HELPERS_H_
