// The models of the training benchmark: plain torch::nn modules, the twins of those in
// tools/bench/peer/peer_model.py, with the same parameters in the same order and the same values.
#ifndef MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MODELS_H_
#define MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MODELS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace medfusion::bench {

class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor x) = 0;
  // Of forward's result and the targets; the mean over the batch.
  virtual at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) = 0;
};

// "mlp_small", "mlp_big", "transformer"; throws std::invalid_argument for others. Values are those
// that FillParameters gives.
std::shared_ptr<Model> MakeModel(const std::string& name);

struct Batch {
  at::Tensor x;
  at::Tensor y;
};

// Samples begin..end-1 of batch number `batch` of that model.
Batch MakeBatch(const std::string& model, int64_t batch, int64_t begin, int64_t end);

}  // namespace medfusion::bench

#endif  // MEDFUSION_TOOLS_BENCH_TRAIN_STEP_MODELS_H_
