// One rank of a job that trains a TorchScript module from Python under FULL_SHARD.
//
// usage: train_torchscript MODULE DATA OUTPUT sgd|adamw
//
// DATA is a TorchScript module with buffers x and y, [steps, joined batch, ...]; each rank takes
// its rows. Rank 0 saves the trained module as OUTPUT, with Python's names and code.
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "medfusion/distributed/setup.h"
#include "medfusion/fsdp/torchscript.h"

namespace {

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::string& name,
                                                       const std::vector<at::Tensor>& parameters) {
  if (name == "sgd") {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
  }
  return std::make_unique<torch::optim::AdamW>(parameters,
                                               torch::optim::AdamWOptions(0.01).weight_decay(0.1));
}

void Train(const std::string& module, const std::string& data, const std::string& output,
           const std::string& optimizer_name) {
  const auto context = medfusion::SetupDistributed().value();
  torch::set_num_threads(1);
  torch::jit::Module net = torch::jit::load(module);
  const torch::jit::Module batches = torch::jit::load(data);
  const at::Tensor x = batches.attr("x").toTensor(), y = batches.attr("y").toTensor();
  medfusion::FSDPOptions options;
  options.min_num_params = 100;
  medfusion::FSDPWrapper model(net, options);
  std::cout << "units " << model->sharded_model().units().size() << std::endl;
  const auto optimizer = MakeOptimizer(optimizer_name, model->parameters());
  const int64_t rows = x.size(1) / context.world_size, begin = context.rank * rows;
  for (int64_t step = 0; step < x.size(0); ++step) {
    optimizer->zero_grad();
    const at::Tensor out = model->forward(x[step].narrow(0, begin, rows)).toTensor();
    torch::mse_loss(out, y[step].narrow(0, begin, rows)).backward();
    optimizer->step();
  }
  const medfusion::FullParameters scope(model, /*writeback=*/false);
  if (context.rank == 0) net.save(output);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: train_torchscript MODULE DATA OUTPUT sgd|adamw\n";
    return 2;
  }
  try {
    Train(argv[1], argv[2], argv[3], argv[4]);
    return medfusion::CleanupDistributed().ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
