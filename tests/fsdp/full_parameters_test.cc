// Reading and writing parameters outside of forward and backward.
#include "medfusion/fsdp/fsdp_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>

#include "tests/fsdp/helpers.h"
#include "tests/fsdp/models.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FullParametersTest, AParkedParameterIsAnErrorThatNamesItAndTheScope) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    const at::Tensor weight = net->named_parameters()["net.2.weight"];
    const auto read = [&] { weight.sum(); };
    const auto expected = AllOf(HasSubstr("aten::sum"), HasSubstr("'net.2.weight' of unit 'net.2'"),
                                HasSubstr("FullParameters"));
    EXPECT_THAT(ErrorOf(read), expected);
    const at::Tensor loss = model->forward(Input(0)).sum();
    EXPECT_THAT(ErrorOf(read), expected) << "after forward, where some units are still in memory";
    loss.backward();
    EXPECT_THAT(ErrorOf(read), expected);
    EXPECT_THAT(ErrorOf([&] { weight.t()[0].item<double>(); }), HasSubstr("net.2.weight"));
    // Shapes are not values.
    EXPECT_EQ(at::zeros_like(weight).sizes(), weight.sizes());
    EXPECT_EQ(weight.t().size(0), weight.size(1));
  });
}

TEST(FullParametersTest, FullParametersCanBeReadAndWrittenBack) {
  RunRanks(3, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    {
      const FullParameters scope(model, /*writeback=*/false);
      for (const auto& item : net->named_parameters()) {
        EXPECT_TRUE(at::equal(item.value(), reference->named_parameters()[item.key()]))
            << item.key();
      }
      EXPECT_THAT(ErrorOf([&] {
                    torch::NoGradGuard no_grad;
                    net->parameters()[0].zero_();
                  }),
                  AllOf(HasSubstr("net.0.weight"), HasSubstr("read-only")));
    }
    {
      const FullParameters scope(model);
      torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) parameter.mul_(2);
      for (at::Tensor& parameter : reference->parameters()) parameter.mul_(2);
      EXPECT_THAT(ErrorOf([&] { const FullParameters second(model); }), HasSubstr("do not nest"));
      EXPECT_THAT(ErrorOf([&] { model->forward(Input(0)); }), HasSubstr("close the scope first"));
    }
    EXPECT_TRUE(at::allclose(model->forward(Input(0)), reference->forward(Input(0)), 1e-12, 0));
  });
}

TEST(FullParametersTest, LibTorchSavesTheModuleInsideFullParameters) {
  RunRanks(2, [](ProcessGroup&) {
    auto net = Seeded<Mlp>();
    const auto reference = Seeded<Mlp>();
    FSDPWrapper<Model> model(net, EveryModuleAUnit());
    std::stringstream file;
    {
      const FullParameters scope(model, /*writeback=*/false);
      torch::serialize::OutputArchive archive;
      net->save(archive);
      archive.save_to(file);
    }
    Mlp loaded;
    loaded.to(at::kDouble);
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    loaded.load(archive);
    for (const auto& item : loaded.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), reference->named_parameters()[item.key()]));
    }
  });
}

}  // namespace
}  // namespace medfusion::testing
