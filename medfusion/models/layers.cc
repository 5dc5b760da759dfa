#include "medfusion/models/layers.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace medfusion {
namespace {

std::string Sizes(const std::vector<int64_t>& sizes) {
  std::ostringstream text;
  text << '[';
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text << ", ";
    if (sizes[i] < 0) {
      text << '*';
    } else {
      text << sizes[i];
    }
  }
  text << ']';
  return text.str();
}

}  // namespace

at::Tensor Activate(Activation activation, const at::Tensor& x) {
  return activation == Activation::kGelu ? at::gelu(x) : at::relu(x);
}

void CheckSizes(const char* what, const at::Tensor& x, const std::vector<int64_t>& expected) {
  TORCH_CHECK(x.defined(), what, " is an undefined tensor; expected ", Sizes(expected));
  bool fits = x.dim() == static_cast<int64_t>(expected.size());
  for (int64_t i = 0; fits && i < x.dim(); ++i) {
    fits = expected[i] < 0 || x.size(i) == expected[i];
  }
  TORCH_CHECK(fits, what, " has the shape ", x.sizes(), "; expected ", Sizes(expected));
}

void CheckOption(const char* what, int64_t value, int64_t least) {
  TORCH_CHECK(value >= least, what, " is ", value, "; expected at least ", least);
}

void CheckDropout(const char* what, double p) {
  TORCH_CHECK(p >= 0 && p < 1, what, " is ", p, "; expected 0 <= p < 1");
}

}  // namespace medfusion
