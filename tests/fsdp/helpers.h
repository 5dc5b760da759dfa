// What the FSDP tests share besides models.
#ifndef MEDFUSION_TESTS_FSDP_HELPERS_H_
#define MEDFUSION_TESTS_FSDP_HELPERS_H_

#include <torch/torch.h>

#include <exception>
#include <string>

#include "medfusion/fsdp/options.h"
#include "tests/fsdp/models.h"

namespace medfusion::testing {

inline FSDPOptions EveryModuleAUnit() {
  FSDPOptions options;
  options.min_num_params = 0;
  return options;
}

// The text of what `call` throws.
template <typename Call>
std::string ErrorOf(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// A batch [4, kFeatures] in float64 that differs by rank.
inline at::Tensor Input(int rank) {
  return (torch::arange(4 * kFeatures, at::kDouble).view({4, kFeatures}) + 5.0 * rank).sin();
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_FSDP_HELPERS_H_
