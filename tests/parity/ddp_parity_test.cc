// DDP on 1 to 4 ranks against one rank on the joined batch. docs/ddp.md states the guarantees.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "medfusion/ddp/ddp.h"
#include "tests/parity/parity.h"
#include "tests/testing/ranks.h"

namespace medfusion::testing {
namespace {

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

// One matrix, registered in two modules and used three times.
class Tied : public Model {
 public:
  Tied() {
    a_ = register_module("a", std::make_shared<torch::nn::LinearImpl>(kFeatures, kFeatures));
    b_ = register_module("b", std::make_shared<TiedLinear>(kFeatures, kFeatures));
    b_->TieTo(*a_);
    out_ = register_module("out", torch::nn::Linear(kFeatures, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    x = torch::tanh(a_->forward(x));
    x = torch::tanh(b_->forward(x));
    return out_->forward(torch::tanh(a_->forward(x)));
  }

 private:
  class TiedLinear : public torch::nn::LinearImpl {
   public:
    using torch::nn::LinearImpl::LinearImpl;
    void TieTo(const torch::nn::LinearImpl& other) {
      weight = parameters_["weight"] = other.weight;
    }
  };
  std::shared_ptr<torch::nn::LinearImpl> a_;
  std::shared_ptr<TiedLinear> b_;
  torch::nn::Linear out_{nullptr};
};

// A branch that only batches with a positive first feature take; one that none takes; one that all
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

class Normed : public Model {
 public:
  Normed() {
    in_ = register_module("in", torch::nn::Linear(kFeatures, 8));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(8));
    out_ = register_module("out", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(at::Tensor x) override {
    return out_->forward(torch::relu(norm_->forward(in_->forward(x))));
  }

 private:
  torch::nn::Linear in_{nullptr}, out_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
};

template <typename M>
Job Of(std::string name) {
  Job job;
  job.name = std::move(name);
  job.make = [] { return std::make_shared<M>(); };
  return job;
}

std::vector<Result> TrainRanks(const Job& job, const Data& data, at::ScalarType dtype, int world,
                               const DDPOptions& options = {}) {
  std::vector<Result> results(world);
  // Made here, one after another: the seed is the process's.
  std::vector<std::shared_ptr<Model>> models;
  for (int r = 0; r < world; ++r) models.push_back(MakeSeeded(job, dtype));
  RunRanks(world, [&](ProcessGroup& group) {
    const int rank = group.rank();
    DDPWrapper<Model> model(models[rank], options);
    const int part = kBatch / world;
    const int begin = job.bounds.empty() ? rank * part : job.bounds[rank];
    const int end = job.bounds.empty()  ? begin + part
                    : rank + 1 == world ? kBatch
                                        : job.bounds[rank + 1];
    results[rank] = Train(
        job, data, *models[rank], model->parameters(), begin, end, world,
        [&](const at::Tensor& x) { return model->forward(x); },
        [&](bool last, const auto& run) {
          if (last) return run();
          const auto unsynced = model->no_sync();
          run();
        });
  });
  return results;
}

void CheckParity(const Job& job, const DDPOptions& options = {}) {
  struct Precision {
    at::ScalarType dtype;
    double loss;
    double parameters;
  };
  for (const Precision& p : {Precision{at::kDouble, 1e-12, 1e-12}, {at::kFloat, 1e-6, 1e-5}}) {
    const Data data = MakeData(job, p.dtype);
    const Result alone = TrainAlone(job, data, p.dtype);
    ASSERT_LT(alone.losses.back(), alone.losses.front()) << "the job does not train";
    for (int world = 1; world <= 4; ++world) {
      SCOPED_TRACE(job.name + " in " + c10::toString(p.dtype) + " on " + std::to_string(world) +
                   " ranks");
      ExpectParity(alone, TrainRanks(job, data, p.dtype, world, options), p.loss, p.parameters);
    }
  }
}

DDPOptions TinyBuckets() {
  DDPOptions options;
  options.buckets = {64, 256};
  return options;
}

DDPOptions FindUnused() {
  DDPOptions options;
  options.find_unused_parameters = true;
  return options;
}

DDPOptions SyncedBatchNorm() {
  DDPOptions options;
  options.sync_batch_norm = true;
  return options;
}

TEST(DdpParityTest, MlpWithSgdAndMomentum) { CheckParity(Of<Mlp>("mlp")); }

TEST(DdpParityTest, ManySmallBucketsRebuiltAfterTheFirstStep) {
  CheckParity(Of<Mlp>("mlp"), TinyBuckets());
}

TEST(DdpParityTest, AdamW) {
  Job job = Of<Mlp>("mlp");
  job.adamw = true;
  CheckParity(job, TinyBuckets());
}

TEST(DdpParityTest, GradientsZeroedInPlace) {
  Job job = Of<Mlp>("mlp");
  job.set_to_none = false;
  CheckParity(job, TinyBuckets());
}

TEST(DdpParityTest, ClippedGradients) {
  Job job = Of<Mlp>("mlp");
  job.clip_norm = 0.1;
  CheckParity(job, TinyBuckets());
}

TEST(DdpParityTest, AccumulationOverThreeBatches) {
  Job job = Of<Mlp>("mlp");
  job.accumulate = 3;
  CheckParity(job, TinyBuckets());
  job.set_to_none = false;
  CheckParity(job);
}

TEST(DdpParityTest, UnevenBatches) {
  Job job = Of<Mlp>("mlp");
  job.bounds = {0, 1, 3, 4};
  CheckParity(job);
}

TEST(DdpParityTest, TiedWeights) { CheckParity(Of<Tied>("tied"), TinyBuckets()); }

TEST(DdpParityTest, ParametersUnusedOnSomeRanksOrOnAll) {
  DDPOptions options = FindUnused();
  CheckParity(Of<Branches>("branches"), options);
  options.buckets = {64, 64};
  CheckParity(Of<Branches>("branches"), options);
  Job job = Of<Branches>("branches");
  job.accumulate = 2;
  job.set_to_none = false;
  CheckParity(job, options);
}

TEST(DdpParityTest, BatchNormOverTheJointBatch) {
  CheckParity(Of<Normed>("norm"), SyncedBatchNorm());
}

TEST(DdpParityTest, BatchNormOverUnevenBatches) {
  Job job = Of<Normed>("norm");
  job.bounds = {0, 2, 5, 8};  // LibTorch's module wants two samples of its own
  CheckParity(job, SyncedBatchNorm());
}

TEST(DdpParityTest, OneRankIsBitwiseTheUnwrappedModule) {
  for (const Job& job : {Of<Mlp>("mlp"), Of<Tied>("tied")}) {
    const Data data = MakeData(job, at::kFloat);
    const Result alone = TrainAlone(job, data, at::kFloat);
    const auto ranks = TrainRanks(job, data, at::kFloat, 1, TinyBuckets());
    ExpectBitwiseEqual(ranks[0].parameters, alone.parameters);
    EXPECT_EQ(ranks[0].losses, alone.losses);
  }
}

TEST(DdpParityTest, RunsRepeatBitwise) {
  const Job job = Of<Mlp>("mlp");
  const Data data = MakeData(job, at::kFloat);
  for (int world = 2; world <= 4; ++world) {
    const auto first = TrainRanks(job, data, at::kFloat, world, TinyBuckets());
    const auto second = TrainRanks(job, data, at::kFloat, world, TinyBuckets());
    for (int r = 0; r < world; ++r) {
      ExpectBitwiseEqual(first[r].parameters, second[r].parameters);
      EXPECT_EQ(first[r].losses, second[r].losses);
    }
  }
}

TEST(DdpParityTest, TwoRanksDoNotDependOnBucketsBitwise) {
  const Job job = Of<Mlp>("mlp");
  const Data data = MakeData(job, at::kFloat);
  const auto tiny = TrainRanks(job, data, at::kFloat, 2, TinyBuckets());
  const auto one = TrainRanks(job, data, at::kFloat, 2);
  ExpectBitwiseEqual(tiny[0].parameters, one[0].parameters);
}

}  // namespace
}  // namespace medfusion::testing
