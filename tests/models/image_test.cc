#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "medfusion/models/image_encoder.h"
#include "medfusion/models/multimodal_classifier.h"
#include "tests/models/gradients.h"

namespace medfusion {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> Shape(std::initializer_list<int64_t> sizes) { return sizes; }

MultimodalClassifierOptions Options(ImageNorm norm) {
  MultimodalClassifierOptions options;
  options.image.in_channels = 2;
  options.image.channels = {4, 6};
  options.image.norm = norm;
  options.table.groups = {{0, 1}, {2}};
  options.table.encoder.hidden = {4};
  options.table.encoder.embedding_dim = 5;
  options.table.num_classes = 3;
  return options;
}

TEST(ImageEncoderTest, AnyImageSizeGivesAnEmbedding) {
  ImageEncoder encoder(ImageEncoderOptions{.in_channels = 3, .embedding_dim = 7});
  EXPECT_EQ(encoder->forward(torch::randn({2, 3, 16, 16})).sizes(), Shape({2, 7}));
  EXPECT_EQ(encoder->forward(torch::randn({2, 3, 17, 9})).sizes(), Shape({2, 7}));
  EXPECT_EQ(encoder->forward(torch::randn({2, 3, 1, 1})).sizes(), Shape({2, 7}));
}

TEST(ImageEncoderTest, StagesHaveTheBlocksAskedFor) {
  ImageEncoder encoder(ImageEncoderOptions{.channels = {4, 12}, .blocks_per_stage = 2});
  std::vector<std::string> names;
  for (const auto& child : encoder->named_children()) names.push_back(child.key());
  EXPECT_THAT(names, ::testing::ElementsAre("stem", "stage0_block0", "stage0_block1",
                                            "stage1_block0", "stage1_block1", "output"));
  // Only a block that changes the shape has a convolution in its shortcut.
  const auto parameters = encoder->named_parameters();
  EXPECT_FALSE(parameters.contains("stage0_block0.shortcut.conv.weight"));
  EXPECT_EQ(parameters["stage1_block0.shortcut.conv.weight"].sizes(), Shape({12, 4, 1, 1}));
  EXPECT_FALSE(parameters.contains("stage1_block1.shortcut.conv.weight"));
}

TEST(ImageEncoderTest, GradientsReachEveryParameterAndPixel) {
  for (const ImageNorm norm : {ImageNorm::kBatch, ImageNorm::kGroup}) {
    torch::manual_seed(1);
    ImageEncoder encoder(ImageEncoderOptions{.channels = {8, 12}, .norm = norm});
    at::Tensor images = torch::randn({3, 1, 8, 8}, torch::requires_grad());
    encoder->forward(images).square().sum().backward();
    for (const auto& parameter : encoder->named_parameters()) {
      ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
      EXPECT_GT(parameter->grad().abs().max().item<float>(), 0) << parameter.key();
    }
    EXPECT_GT(images.grad().abs().amin().item<float>(), 0);
  }
}

TEST(ImageEncoderTest, GroupNormMakesASampleIndependentOfItsBatch) {
  torch::manual_seed(2);
  ImageEncoder encoder(ImageEncoderOptions{.channels = {12}, .norm = ImageNorm::kGroup});
  const at::Tensor images = torch::randn({3, 1, 8, 8});
  EXPECT_TRUE(torch::allclose(encoder->forward(images).narrow(0, 1, 1),
                              encoder->forward(images.narrow(0, 1, 1)), 1e-5, 1e-6));
}

TEST(ImageEncoderTest, ActivationCheckpointingChangesNoBit) {
  const at::Tensor images = torch::randn({3, 1, 9, 8});
  std::vector<at::Tensor> gradients[2];
  for (const bool checkpointing : {false, true}) {
    torch::manual_seed(3);
    ImageEncoder encoder(
        ImageEncoderOptions{.channels = {4, 6}, .activation_checkpointing = checkpointing});
    encoder->forward(images).square().sum().backward();
    for (const at::Tensor& p : encoder->parameters()) gradients[checkpointing].push_back(p.grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
  }
}

TEST(ImageEncoderTest, WrongInputsAndOptionsAreNamed) {
  ImageEncoder encoder(ImageEncoderOptions{.in_channels = 3});
  try {
    encoder->forward(torch::randn({2, 1, 8, 8}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "ImageEncoder: images has the shape [2, 1, 8, 8]; expected [*, 3, *, *]");
  }
  EXPECT_THROW(encoder->forward(torch::randn({3, 8, 8})), c10::Error);
  EXPECT_THROW(ImageEncoder(ImageEncoderOptions{.channels = {}}), c10::Error);
  EXPECT_THROW(ImageEncoder(ImageEncoderOptions{.channels = {0}}), c10::Error);
}

TEST(MultimodalClassifierTest, FusesTheImageAndEveryGroup) {
  torch::manual_seed(3);
  MultimodalClassifier model(Options(ImageNorm::kBatch));
  const at::Tensor images = torch::randn({4, 2, 8, 8}), features = torch::randn({4, 3});
  EXPECT_EQ(model->forward(images, features).sizes(), Shape({4, 3}));
  const FusionOutput fused = model->Fuse(images, features);
  EXPECT_EQ(fused.weights.sizes(), Shape({4, 3}));
  EXPECT_TRUE(torch::allclose(fused.weights.sum(1), torch::ones({4})));
  model->forward(images, features).square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_GT(parameter->grad().abs().max().item<float>(), 0) << parameter.key();
  }
}

TEST(MultimodalClassifierTest, GradientsEqualFiniteDifferencesInFloat64) {
  torch::manual_seed(4);
  MultimodalClassifierOptions options = Options(ImageNorm::kGroup);
  options.image.channels = {2};
  options.table.encoder.activation = Activation::kGelu;
  MultimodalClassifier model(options);
  model->to(torch::kDouble);
  at::Tensor images = torch::randn({2, 2, 3, 3}, torch::kDouble);
  at::Tensor features = torch::randn({2, 3}, torch::kDouble);
  ExpectGradients(*model, {images, features},
                  [&] { return model->forward(images, features).square().sum(); });
}

TEST(MultimodalClassifierTest, AbsentModalitiesMayHoldNaN) {
  torch::manual_seed(5);
  MultimodalClassifier model(Options(ImageNorm::kGroup));
  at::Tensor images = torch::randn({2, 2, 8, 8}), features = torch::randn({2, 3});
  const at::Tensor present = torch::tensor({{false, true, true}, {true, true, false}});
  const at::Tensor clean = model->forward(images, features, present);
  images[0].fill_(kNan);
  features[1][2] = kNan;
  const at::Tensor logits = model->forward(images, features, present);
  EXPECT_TRUE(logits.equal(clean));
  logits.sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
  }
}

TEST(MultimodalClassifierTest, DisagreeingInputsAreNamed) {
  MultimodalClassifier model(Options(ImageNorm::kBatch));
  try {
    model->forward(torch::randn({4, 2, 8, 8}), torch::randn({3, 3}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "MultimodalClassifier: features has the shape [3, 3]; expected [4, *]");
  }
  EXPECT_THROW(model->forward(torch::randn({4, 2, 8, 8}), torch::randn({4, 3}),
                              torch::ones({4, 2}, torch::kBool)),
               c10::Error);
}

}  // namespace
}  // namespace medfusion
