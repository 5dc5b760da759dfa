// The smallest data-parallel program: a line fitted by as many ranks as the launcher started.
//
//   tools/bazel build //examples/ddp
//   torchrun --no-python --nproc_per_node=2 bazel-bin/examples/ddp/ddp
#include <torch/torch.h>

#include <iostream>

#include "medfusion/ddp/ddp.h"
#include "medfusion/distributed/distributed.h"

int main() {
  const auto context = medfusion::SetupDistributed();
  if (!context.ok()) {
    std::cerr << context.status().message() << std::endl;
    return 1;
  }
  {
    torch::nn::Linear net(1, 1);
    medfusion::DDPWrapper model(net);
    torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
    torch::manual_seed(context->rank);  // each rank has its own data
    for (int step = 0; step < 200; ++step) {
      const at::Tensor x = torch::rand({32, 1});
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), 3 * x + 1).backward();
      optimizer.step();
    }
    if (medfusion::IsMainProcess()) {
      std::cout << "y = " << net->weight.item<float>() << " x + " << net->bias.item<float>()
                << ", found by " << context->world_size << " rank(s)" << std::endl;
    }
  }
  return medfusion::CleanupDistributed().ok() ? 0 : 1;
}
