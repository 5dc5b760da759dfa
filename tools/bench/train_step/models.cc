#include "tools/bench/train_step/models.h"

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "tools/bench/train_step/hash_values.h"

namespace medfusion::bench {
namespace {

constexpr int64_t kTime = 128, kVocabulary = 8192, kWidth = 512, kHeads = 8, kBlocks = 6;
constexpr int64_t kSmallFeatures = 30, kBigFeatures = 2048;

class Layer : public torch::nn::Module {
 public:
  Layer(int64_t in, int64_t out, bool relu)
      : linear_(register_module("lin", torch::nn::Linear(in, out))), relu_(relu) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear_->forward(x);
    return relu_ ? torch::relu(y) : y;
  }

 private:
  torch::nn::Linear linear_;
  const bool relu_;
};

class Mlp : public Model {
 public:
  Mlp(const std::vector<int64_t>& widths, bool classifies) : classifies_(classifies) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_->push_back(Layer(widths[i], widths[i + 1], i + 2 < widths.size()));
    }
    register_module("layers", layers_);
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& layer : *layers_) x = layer->as<Layer>()->forward(x);
    return x;
  }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) override {
    return classifies_ ? torch::cross_entropy_loss(output, target) : at::mse_loss(output, target);
  }

 private:
  torch::nn::ModuleList layers_;
  const bool classifies_;
};

torch::nn::LayerNorm Norm() { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})); }

class Block : public torch::nn::Module {
 public:
  Block()
      : norm1_(register_module("ln1", Norm())),
        qkv_(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        proj_(register_module("proj", torch::nn::Linear(kWidth, kWidth))),
        norm2_(register_module("ln2", Norm())),
        fc_(register_module("fc", torch::nn::Linear(kWidth, 4 * kWidth))),
        out_(register_module("out", torch::nn::Linear(4 * kWidth, kWidth))) {}
  at::Tensor forward(at::Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    std::vector<at::Tensor> parts = qkv_->forward(norm1_->forward(x)).split(kWidth, 2);
    for (at::Tensor& part : parts) part = part.view({b, t, kHeads, -1}).transpose(1, 2);
    const at::Tensor attention = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    x = x + proj_->forward(attention.transpose(1, 2).reshape({b, t, kWidth}));
    return x + out_->forward(at::gelu(fc_->forward(norm2_->forward(x))));
  }

 private:
  torch::nn::LayerNorm norm1_;
  torch::nn::Linear qkv_, proj_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear fc_, out_;
};

class Transformer : public Model {
 public:
  Transformer()
      : tokens_(register_module("tok", torch::nn::Embedding(kVocabulary, kWidth))),
        positions_(register_module("pos", torch::nn::Embedding(kTime, kWidth))) {
    for (int64_t i = 0; i < kBlocks; ++i) blocks_->push_back(Block());
    register_module("layers", blocks_);
    norm_ = register_module("lnf", Norm());
    head_ = register_module(
        "head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kVocabulary).bias(false)));
  }
  at::Tensor forward(at::Tensor x) override {
    x = tokens_->forward(x) + positions_->weight;
    for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
    return head_->forward(norm_->forward(x));
  }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) override {
    return torch::cross_entropy_loss(output.view({-1, kVocabulary}), target);
  }

 private:
  torch::nn::Embedding tokens_, positions_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Biases 0, norms 1, embeddings 0.02 * U, weights U / sqrt(inputs); U is stream p for parameter p.
void FillParameters(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  uint32_t stream = 0;
  for (auto& item : model.named_parameters()) {
    at::Tensor& values = item.value();
    const std::string& name = item.key();
    if (EndsWith(name, "bias")) {
      values.zero_();
    } else if (values.dim() == 1) {
      values.fill_(1.0);
    } else {
      const bool embedding = name == "tok.weight" || name == "pos.weight";
      const auto scale = static_cast<float>(
          embedding ? 0.02 : 1.0 / std::sqrt(static_cast<double>(values.size(1))));
      float* data = values.mutable_data_ptr<float>();
      for (int64_t i = 0; i < values.numel(); ++i) {
        data[i] = Uniform(stream, static_cast<uint32_t>(i)) * scale;
      }
    }
    ++stream;
  }
}

at::Tensor UniformRows(uint32_t stream, int64_t begin, int64_t end, int64_t features) {
  at::Tensor values = at::empty({end - begin, features});
  float* data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = Uniform(stream, static_cast<uint32_t>(begin * features + i));
  }
  return values;
}

Batch TokenRows(uint32_t stream, int64_t begin, int64_t end) {
  at::Tensor tokens = at::empty({end - begin, kTime + 1}, at::kLong);
  int64_t* data = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    data[i] = Hash(stream, static_cast<uint32_t>(begin * (kTime + 1) + i)) % kVocabulary;
  }
  return {tokens.narrow(1, 0, kTime).contiguous(),
          tokens.narrow(1, 1, kTime).contiguous().view({-1})};
}

}  // namespace

std::shared_ptr<Model> MakeModel(const std::string& name) {
  std::shared_ptr<Model> model;
  if (name == "mlp_small") {
    model = std::make_shared<Mlp>(std::vector<int64_t>{kSmallFeatures, 64, 64, 2}, true);
  } else if (name == "mlp_big") {
    model = std::make_shared<Mlp>(std::vector<int64_t>(9, kBigFeatures), false);
  } else if (name == "transformer") {
    model = std::make_shared<Transformer>();
  } else {
    throw std::invalid_argument("--model=" + name +
                                " is unknown; expected mlp_small, mlp_big or transformer");
  }
  FillParameters(*model);
  return model;
}

Batch MakeBatch(const std::string& model, int64_t batch, int64_t begin, int64_t end) {
  const auto stream = static_cast<uint32_t>(1000 + 2 * batch);
  if (model == "transformer") return TokenRows(stream, begin, end);
  if (model == "mlp_big") {
    return {UniformRows(stream, begin, end, kBigFeatures),
            UniformRows(stream + 1, begin, end, kBigFeatures)};
  }
  const at::Tensor x = UniformRows(stream, begin, end, kSmallFeatures);
  return {x, (x.select(1, 0) + x.select(1, 1) > 0).to(at::kLong)};
}

}  // namespace medfusion::bench
