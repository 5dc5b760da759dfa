#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "medfusion/models/classification_head.h"
#include "medfusion/models/fusion_classifier.h"
#include "medfusion/models/gated_attention_fusion.h"
#include "medfusion/models/tabular_encoder.h"
#include "tests/models/gradients.h"

namespace medfusion {
namespace {

using ::testing::HasSubstr;

const double kNan = std::numeric_limits<double>::quiet_NaN();

std::string Error(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

GatedAttentionFusion Fusion64(int64_t dim, int64_t attention) {
  torch::manual_seed(1);
  GatedAttentionFusion fusion(
      GatedAttentionFusionOptions{.embedding_dim = dim, .attention_dim = attention});
  fusion->to(torch::kDouble);
  return fusion;
}

FusionClassifierOptions SmallOptions() {
  FusionClassifierOptions options;
  options.groups = {{0, 1}, {4, 2}, {3}};
  options.encoder.hidden = {5};
  options.encoder.embedding_dim = 4;
  options.attention_dim = 3;
  options.num_classes = 3;
  return options;
}

TEST(GatedAttentionFusionTest, EqualsAnExampleWorkedOutByHand) {
  auto fusion = Fusion64(2, 1);
  torch::NoGradGuard no_grad;
  auto parameters = fusion->named_parameters();
  parameters["value.weight"].copy_(torch::tensor({{1.0, -1.0}}));
  parameters["value.bias"].fill_(0.5);
  parameters["gate.weight"].copy_(torch::tensor({{0.5, 2.0}}));
  parameters["gate.bias"].fill_(-1.0);
  parameters["score.weight"].fill_(3.0);
  const at::Tensor h = torch::tensor({{{1.0, 2.0}, {-1.0, 0.5}}}, torch::kDouble);

  const auto score = [](double x, double y) {
    return 3.0 * std::tanh(x - y + 0.5) / (1 + std::exp(-(0.5 * x + 2 * y - 1)));
  };
  const double a = std::exp(score(1, 2)), b = std::exp(score(-1, 0.5));
  const FusionOutput out = fusion->forward(h);
  EXPECT_NEAR(out.weights[0][0].item<double>(), a / (a + b), 1e-15);
  EXPECT_NEAR(out.weights[0][1].item<double>(), b / (a + b), 1e-15);
  EXPECT_NEAR(out.embedding[0][0].item<double>(), (a - b) / (a + b), 1e-15);
  EXPECT_NEAR(out.embedding[0][1].item<double>(), (2 * a + 0.5 * b) / (a + b), 1e-15);
}

TEST(GatedAttentionFusionTest, WeightsSumToOne) {
  auto fusion = Fusion64(6, 4);
  const FusionOutput out = fusion->forward(torch::randn({7, 5, 6}, torch::kDouble));
  EXPECT_EQ(out.embedding.sizes(), (std::vector<int64_t>{7, 6}));
  EXPECT_EQ(out.weights.sizes(), (std::vector<int64_t>{7, 5}));
  EXPECT_TRUE(torch::allclose(out.weights.sum(1), torch::ones({7}, torch::kDouble), 0, 1e-14));
  EXPECT_GT(out.weights.min().item<double>(), 0);
}

TEST(GatedAttentionFusionTest, PermutingModalitiesPermutesTheWeightsAlone) {
  auto fusion = Fusion64(6, 4);
  const at::Tensor h = torch::randn({7, 3, 6}, torch::kDouble);
  const at::Tensor order = torch::tensor({2, 0, 1});
  const FusionOutput plain = fusion->forward(h);
  const FusionOutput permuted = fusion->forward(h.index_select(1, order));
  EXPECT_TRUE(torch::allclose(permuted.weights, plain.weights.index_select(1, order), 0, 1e-14));
  EXPECT_TRUE(torch::allclose(permuted.embedding, plain.embedding, 0, 1e-14));
}

TEST(GatedAttentionFusionTest, AnAbsentModalityIsAsIfItWereNotThere) {
  auto fusion = Fusion64(6, 4);
  at::Tensor h = torch::randn({2, 3, 6}, torch::kDouble);
  const FusionOutput without = fusion->forward(h.index_select(1, torch::tensor({0, 2})));
  h.select(1, 1).fill_(kNan);
  const FusionOutput masked =
      fusion->forward(h, torch::tensor({{true, false, true}, {true, false, true}}));
  EXPECT_TRUE(torch::allclose(masked.embedding, without.embedding, 0, 1e-14));
  EXPECT_EQ(masked.weights.select(1, 1).abs().max().item<double>(), 0);
  EXPECT_TRUE(torch::allclose(masked.weights.sum(1), torch::ones({2}, torch::kDouble), 0, 1e-14));
}

TEST(GatedAttentionFusionTest, ASampleWithoutModalitiesIsZeroAndHarmsNoGradient) {
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16}) {
    auto fusion = Fusion64(6, 4);
    fusion->to(dtype);
    at::Tensor h = torch::randn({2, 3, 6}, dtype);
    h[0].fill_(kNan);
    h.requires_grad_();
    const at::Tensor present = torch::tensor({{false, false, false}, {true, true, false}});
    const FusionOutput out = fusion->forward(h, present);
    EXPECT_EQ(out.embedding[0].abs().max().item<double>(), 0);
    EXPECT_EQ(out.weights[0].abs().max().item<double>(), 0);
    out.embedding.sum().backward();
    EXPECT_EQ(h.grad()[0].abs().max().item<double>(), 0);
    EXPECT_EQ(h.grad()[1][2].abs().max().item<double>(), 0);
    EXPECT_GT(h.grad()[1][1].abs().max().item<double>(), 0);
    for (const auto& parameter : fusion->named_parameters()) {
      EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST(GatedAttentionFusionTest, GradientsEqualFiniteDifferences) {
  auto fusion = Fusion64(3, 2);
  at::Tensor h = torch::randn({2, 3, 3}, torch::kDouble);
  const at::Tensor present = torch::tensor({{true, true, true}, {true, false, true}});
  const at::Tensor mix = torch::randn({2, 3}, torch::kDouble);
  ExpectGradients(*fusion, {h}, [&] {
    const FusionOutput out = fusion->forward(h, present);
    return (out.embedding * mix).sum() + out.weights.square().sum();
  });
}

TEST(GatedAttentionFusionTest, WrongInputsNameTheirSizes) {
  auto fusion = Fusion64(3, 2);
  const at::Tensor h = torch::randn({2, 3, 3}, torch::kDouble);
  EXPECT_EQ(Error([&] { fusion->forward(h.narrow(2, 0, 2)); }),
            "GatedAttentionFusion: embeddings has the shape [2, 3, 2]; expected [*, *, 3]");
  EXPECT_EQ(Error([&] {
              fusion->forward(h, torch::ones({2, 2}, torch::kBool));
            }),
            "GatedAttentionFusion: present has the shape [2, 2]; expected [2, 3]");
  EXPECT_EQ(Error([&] {
              fusion->forward(h, torch::ones({2, 3}));
            }),
            "GatedAttentionFusion: present is Float; expected Bool");
  EXPECT_THAT(Error([] { GatedAttentionFusion(GatedAttentionFusionOptions{}); }),
              HasSubstr("embedding_dim is 0; expected at least 1"));
}

TEST(TabularEncoderTest, HasTheLayersAskedFor) {
  TabularEncoder none(TabularEncoderOptions{.in_features = 4, .hidden = {}});
  EXPECT_EQ(none->parameters().size(), 2u);
  EXPECT_EQ(none->forward(torch::randn({3, 4})).sizes(), (std::vector<int64_t>{3, 16}));

  TabularEncoder deep(TabularEncoderOptions{
      .in_features = 4, .hidden = {8, 6}, .embedding_dim = 5, .norm = Norm::kBatch});
  std::vector<std::string> names;
  for (const auto& parameter : deep->named_parameters()) names.push_back(parameter.key());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("linear0.weight", "linear0.bias",
                                                     "norm0.weight", "norm0.bias", "linear1.weight",
                                                     "linear1.bias", "norm1.weight", "norm1.bias",
                                                     "output.weight", "output.bias"));
  EXPECT_EQ(deep->forward(torch::randn({3, 4})).sizes(), (std::vector<int64_t>{3, 5}));
}

TEST(TabularEncoderTest, GradientsEqualFiniteDifferences) {
  for (const Norm norm : {Norm::kNone, Norm::kLayer, Norm::kBatch}) {
    torch::manual_seed(2);
    TabularEncoder encoder(TabularEncoderOptions{.in_features = 3,
                                                 .hidden = {4},
                                                 .embedding_dim = 2,
                                                 .norm = norm,
                                                 .activation = Activation::kGelu});
    encoder->to(torch::kDouble);
    at::Tensor x = torch::randn({5, 3}, torch::kDouble);
    ExpectGradients(*encoder, {x}, [&] { return encoder->forward(x).square().sum(); });
  }
}

TEST(TabularEncoderTest, DropoutActsInTrainingAlone) {
  torch::manual_seed(3);
  TabularEncoder encoder(TabularEncoderOptions{.in_features = 4, .dropout = 0.5});
  const at::Tensor x = torch::randn({3, 4});
  EXPECT_FALSE(encoder->forward(x).equal(encoder->forward(x)));
  encoder->eval();
  EXPECT_TRUE(encoder->forward(x).equal(encoder->forward(x)));
}

TEST(TabularEncoderTest, ActivationCheckpointingChangesNoBit) {
  const at::Tensor x = torch::randn({8, 5});
  std::vector<at::Tensor> gradients[2];
  for (const bool checkpointing : {false, true}) {
    torch::manual_seed(3);
    TabularEncoder encoder(TabularEncoderOptions{.in_features = 5,
                                                 .hidden = {12, 7},
                                                 .dropout = 0.4,
                                                 .activation_checkpointing = checkpointing});
    encoder->forward(x).square().sum().backward();
    for (const at::Tensor& p : encoder->parameters()) gradients[checkpointing].push_back(p.grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
  }
}

TEST(TabularEncoderTest, WrongInputsAndOptionsAreNamed) {
  TabularEncoder encoder(TabularEncoderOptions{.in_features = 4});
  EXPECT_EQ(Error([&] {
              encoder->forward(torch::randn({3, 5}));
            }),
            "TabularEncoder: the input has the shape [3, 5]; expected [*, 4]");
  EXPECT_EQ(Error([&] { encoder->forward(at::Tensor()); }),
            "TabularEncoder: the input is an undefined tensor; expected [*, 4]");
  EXPECT_THAT(Error([] { TabularEncoder(TabularEncoderOptions{}); }),
              HasSubstr("in_features is 0"));
  EXPECT_THAT(Error([] { TabularEncoder(TabularEncoderOptions{.in_features = 1, .dropout = 1}); }),
              HasSubstr("dropout is 1; expected 0 <= p < 1"));
}

TEST(ClassificationHeadTest, MapsEmbeddingsToLogits) {
  ClassificationHead plain(ClassificationHeadOptions{.in_features = 4, .num_classes = 3});
  EXPECT_EQ(plain->parameters().size(), 2u);
  ClassificationHead deep(
      ClassificationHeadOptions{.in_features = 4, .num_classes = 3, .hidden = 6, .dropout = 0.1});
  EXPECT_EQ(deep->parameters().size(), 4u);
  EXPECT_EQ(deep->forward(torch::randn({5, 4})).sizes(), (std::vector<int64_t>{5, 3}));
  EXPECT_THAT(Error([&] { deep->forward(torch::randn({5, 3})); }), HasSubstr("[5, 3]"));
  EXPECT_THAT(Error([] {
                ClassificationHead(ClassificationHeadOptions{.in_features = 4, .num_classes = 1});
              }),
              HasSubstr("num_classes is 1; expected at least 2"));
}

TEST(FusionClassifierTest, EachEncoderSeesItsColumnsAlone) {
  torch::manual_seed(4);
  FusionClassifier model(SmallOptions());
  // Column 5 is in no group.
  at::Tensor x = torch::randn({1, 6}, torch::requires_grad());
  model->forward(x).sum().backward();
  EXPECT_EQ(x.grad()[0][5].item<float>(), 0);
  EXPECT_GT(x.grad()[0].narrow(0, 0, 5).abs().min().item<float>(), 0);

  // The second encoder reads column 4, then column 2.
  auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["encoders.encoder0.linear0.weight"].size(1), 2);
  EXPECT_EQ(parameters["encoders.encoder2.linear0.weight"].size(1), 1);
  torch::NoGradGuard no_grad;
  parameters["encoders.encoder1.linear0.weight"].select(1, 1).zero_();
  at::Tensor other = x.clone();
  other[0][2] += 1;
  EXPECT_TRUE(model->forward(other).equal(model->forward(x)));
  other[0][4] += 1;
  EXPECT_FALSE(model->forward(other).equal(model->forward(x)));
}

TEST(FusionClassifierTest, GradientsEqualFiniteDifferencesInFloat64) {
  torch::manual_seed(5);
  FusionClassifierOptions options = SmallOptions();
  options.encoder.activation = Activation::kGelu;
  options.head_hidden = 3;
  FusionClassifier model(options);
  model->to(torch::kDouble);
  at::Tensor x = torch::randn({4, 5}, torch::kDouble);
  const at::Tensor targets = torch::tensor({0, 2, 1, 0});
  ExpectGradients(*model, {x},
                  [&] { return torch::nn::functional::cross_entropy(model->forward(x), targets); });
}

TEST(FusionClassifierTest, TheSeedFixesTheInitialValues) {
  torch::manual_seed(6);
  const auto first = FusionClassifier(SmallOptions())->parameters();
  torch::manual_seed(6);
  const auto second = FusionClassifier(SmallOptions())->parameters();
  torch::manual_seed(7);
  const auto third = FusionClassifier(SmallOptions())->parameters();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
  EXPECT_FALSE(first[0].equal(third[0]));
}

TEST(FusionClassifierTest, AbsentGroupsMayHoldNaN) {
  torch::manual_seed(8);
  FusionClassifier model(SmallOptions());
  at::Tensor x = torch::randn({2, 5});
  const at::Tensor present = torch::tensor({{true, false, true}, {true, true, true}});
  const at::Tensor clean = model->forward(x, present);
  x[0][4] = kNan;
  x[0][2] = kNan;
  const at::Tensor logits = model->forward(x, present);
  EXPECT_TRUE(logits.equal(clean));
  logits.sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
  }
  EXPECT_EQ(model->Fuse(x, present).weights[0][1].item<float>(), 0);
}

TEST(FusionClassifierTest, WrongInputsAndGroupsAreNamed) {
  FusionClassifier model(SmallOptions());
  EXPECT_EQ(Error([&] {
              model->forward(torch::randn({2, 4}));
            }),
            "features have the shape [2, 4]; a group takes column 4, so expected [*, 5 or more]");
  EXPECT_EQ(Error([&] {
              model->forward(torch::randn({2, 5}), torch::ones({2, 2}, torch::kBool));
            }),
            "GroupEncoders: present has the shape [2, 2]; expected [2, 3]");
  EXPECT_THAT(Error([&] { model->forward(torch::randn({5})); }), HasSubstr("[5]; expected [*, *]"));
  FusionClassifierOptions options;
  EXPECT_THAT(Error([&] { FusionClassifier{options}; }), HasSubstr("no groups"));
  options.groups = {{}};
  EXPECT_THAT(Error([&] { FusionClassifier{options}; }), HasSubstr("empty"));
  options.groups = {{-1}};
  EXPECT_THAT(Error([&] { FusionClassifier{options}; }), HasSubstr("column -1"));
}

}  // namespace
}  // namespace medfusion
