// Small unmodified modules that the FSDP tests share. None of them knows of sharding.
#ifndef MEDFUSION_TESTS_FSDP_MODELS_H_
#define MEDFUSION_TESTS_FSDP_MODELS_H_

#include <torch/torch.h>

#include <memory>

namespace medfusion::testing {

constexpr int kFeatures = 6;
constexpr int kTokens = 20;

class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor x) = 0;
};

class Mlp : public Model {
 public:
  Mlp() {
    net_ =
        register_module("net", torch::nn::Sequential(torch::nn::Linear(kFeatures, 16),
                                                     torch::nn::Tanh(), torch::nn::Linear(16, 16),
                                                     torch::nn::Tanh(), torch::nn::Linear(16, 1)));
  }
  at::Tensor forward(at::Tensor x) override { return net_->forward(x); }

 private:
  torch::nn::Sequential net_{nullptr};
};

// Tokens [batch, time] through an embedding, a transformer and an LSTM.
class Text : public Model {
 public:
  Text() {
    embedding_ = register_module("embedding", torch::nn::Embedding(kTokens, 8));
    const auto layer = torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16);
    encoder_ = register_module(
        "encoder", torch::nn::TransformerEncoder(
                       torch::nn::TransformerEncoderLayer(
                           torch::nn::TransformerEncoderLayerOptions(layer).dropout(0.0)),
                       2));
    lstm_ = register_module("lstm", torch::nn::LSTM(8, 8));
    head_ = register_module("head", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor hidden = encoder_->forward(embedding_->forward(x.t()));
    return head_->forward(std::get<0>(lstm_->forward(hidden)).mean(0));
  }

 private:
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::TransformerEncoder encoder_{nullptr};
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

class Signal : public Model {
 public:
  Signal() {
    conv_ = register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 4, 3)));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    gru_ = register_module("gru", torch::nn::GRU(4, 5));
    head_ = register_module("head", torch::nn::Linear(5, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor hidden = norm_->forward(conv_->forward(x.unsqueeze(1)).permute({2, 0, 1}));
    return head_->forward(std::get<0>(gru_->forward(hidden)).mean(0));
  }

 private:
  torch::nn::Conv1d conv_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::GRU gru_{nullptr};
  torch::nn::Linear head_{nullptr};
};

// The embedding's matrix is also the decoder's, in another unit. 7 rows divide by neither 2, 3 nor
// 4.
class TiedDecoder : public Model {
 public:
  TiedDecoder() {
    embedding_ = register_module("embedding", torch::nn::Embedding(7, 5));
    middle_ = register_module("middle", torch::nn::Linear(5, 5));
    decoder_ = register_module("decoder", std::make_shared<Decoder>());
    decoder_->TieTo(embedding_->weight);
  }
  at::Tensor forward(at::Tensor x) override {
    x = embedding_->forward(x.remainder(7)).mean(1);
    return decoder_->forward(torch::tanh(middle_->forward(x)));
  }
  const at::Tensor& weight() const { return embedding_->weight; }

 private:
  class Decoder : public torch::nn::LinearImpl {
   public:
    Decoder() : torch::nn::LinearImpl(5, 7) {}
    void TieTo(const at::Tensor& other) { weight = parameters_["weight"] = other; }
  };
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::Linear middle_{nullptr};
  std::shared_ptr<Decoder> decoder_;
};

// Parameters of one and two elements, among them one used three times, through a view, and read in
// place.
class Tiny : public Model {
 public:
  Tiny() {
    scale_ = register_parameter("scale", torch::full({1}, 0.7));
    pair_ = register_parameter("pair", torch::ones({2}));
    inner_ = register_module("inner", torch::nn::Linear(kFeatures, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    at::Tensor out = inner_->forward(x * scale_) * scale_.view({1, 1});
    out = out + pair_.slice(0, 1, 2);
    out.mul_(pair_[0]);
    return out + scale_;
  }

 private:
  at::Tensor scale_, pair_;
  torch::nn::Linear inner_{nullptr};
};

// A branch that only batches with a large first feature take; one that none takes; one that all
// take.
class Branches : public Model {
 public:
  Branches() {
    trunk_ = register_module("trunk", torch::nn::Linear(kFeatures, 8));
    sometimes_ = register_module("sometimes", torch::nn::Linear(8, 1));
    never_ = register_module("never", torch::nn::Linear(8, 1));
    always_ = register_module("always", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor takes = x.narrow(1, 0, 1) > 1.0;
    const at::Tensor hidden = torch::tanh(trunk_->forward(x));
    at::Tensor out = always_->forward(hidden);
    if (takes.any().item<bool>()) out = out + sometimes_->forward(hidden) * takes.to(x.dtype());
    return out;
  }

 private:
  torch::nn::Linear trunk_{nullptr}, sometimes_{nullptr}, never_{nullptr}, always_{nullptr};
};

// Weights frozen, biases trained, so that every unit has both.
class Frozen : public Model {
 public:
  Frozen() {
    first = register_module("first", torch::nn::Linear(kFeatures, 8));
    last = register_module("last", torch::nn::Linear(8, 1));
    first->weight.requires_grad_(false);
    last->weight.requires_grad_(false);
  }
  at::Tensor forward(at::Tensor x) override {
    return last->forward(torch::tanh(first->forward(x)));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

// A layer in float32 inside a model in float64: one module, two dtypes.
class TwoDtypes : public Model {
 public:
  TwoDtypes() {
    first_ = register_parameter("first", torch::ones({3, kFeatures}, at::kDouble) * 0.1);
    last_ = register_parameter("last", torch::ones({1, 3}, at::kFloat) * 0.3);
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor hidden = torch::tanh(torch::linear(x, first_));
    return torch::linear(hidden.to(at::kFloat), last_).to(at::kDouble);
  }

 private:
  at::Tensor first_, last_;
};

template <typename M>
std::shared_ptr<Model> Seeded() {
  // Ranks are threads that share LibTorch's generator: fill from one of our own, in float64.
  auto model = std::make_shared<M>();
  if constexpr (!std::is_same_v<M, TwoDtypes>) model->to(at::kDouble);
  torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(3);
  for (const auto& item : model->named_parameters()) {
    at::Tensor values = torch::randn(item.value().sizes(), generator, at::kDouble) * 0.4;
    item.value().copy_(values);
  }
  return model;
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_FSDP_MODELS_H_
