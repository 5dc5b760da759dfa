// One rank of a data-parallel step. Rank r sees the sample r + 1, and the gradient of a weight that
// multiplies its sample is that sample, so its average over two ranks is 1.5.
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdio>

#include "medfusion/ddp/ddp.h"
#include "medfusion/distributed/setup.h"

int main() {
  const auto context = medfusion::SetupDistributed();
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", context.status().ToString().c_str());
    return 1;
  }
  {
    medfusion::DDPWrapper model(torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
    model->forward(torch::full({1, 1}, context->rank + 1.0)).sum().backward();
    std::printf("rank %d of %d: gradient %g\n", context->rank, context->world_size,
                model->parameters()[0].grad().item<double>());
  }
  return medfusion::CleanupDistributed().ok() ? 0 : 1;
}
