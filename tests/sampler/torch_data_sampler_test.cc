#include "medfusion/sampler/torch_data_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

using testing::HasSubstr;

// Each sample is its own index.
class Indices : public torch::data::BatchDataset<Indices, std::vector<size_t>> {
 public:
  explicit Indices(size_t size) : size_(size) {}
  std::vector<size_t> get_batch(c10::ArrayRef<size_t> indices) override { return indices.vec(); }
  std::optional<size_t> size() const override { return size_; }

 private:
  size_t size_;
};

auto MakeLoader(std::shared_ptr<DistributedSampler> sampler, size_t workers) {
  // enforce_ordering, the default: batches come in the sampler's order from any number of workers.
  return torch::data::make_data_loader(
      Indices(sampler->dataset_size()), TorchDataSampler(sampler),
      torch::data::DataLoaderOptions().batch_size(8).workers(workers).timeout(
          std::chrono::seconds(30)));
}

template <typename Loader>
std::vector<size_t> ReadEpoch(Loader& loader) {
  std::vector<size_t> all;
  for (const std::vector<size_t>& batch : loader) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

std::vector<size_t> Expected(int64_t epoch, int64_t rank) {
  DistributedSampler sampler(101, 2, rank);
  sampler.SetEpoch(epoch);
  return *sampler.Next(101);
}

TEST(TorchDataSamplerTest, SetEpochReachesTheLoaderWithAndWithoutWorkers) {
  for (const size_t workers : {0, 2}) {
    for (const int64_t rank : {0, 1}) {
      auto sampler = std::make_shared<DistributedSampler>(101, 2, rank);
      auto loader = MakeLoader(sampler, workers);
      for (const int64_t epoch : {0, 1, 7}) {
        sampler->SetEpoch(epoch);
        EXPECT_EQ(ReadEpoch(*loader), Expected(epoch, rank)) << workers << " workers";
      }
    }
  }
  EXPECT_NE(Expected(0, 0), Expected(1, 0));
}

TEST(TorchDataSamplerTest, ACheckpointInMidEpochLeavesOutWhatTheWorkersReadAhead) {
  auto sampler = std::make_shared<DistributedSampler>(101, 2, 0);
  sampler->SetEpoch(3);
  SamplerState state;
  {
    auto loader = MakeLoader(sampler, 2);
    int64_t trained = 0;
    for (const std::vector<size_t>& batch : *loader) {
      trained += static_cast<int64_t>(batch.size());
      if (trained == 24) state = sampler->StateAfter(trained);
    }
    EXPECT_EQ(trained, 51);
  }
  auto resumed = std::make_shared<DistributedSampler>(101, 2, 0);
  ASSERT_TRUE(resumed->Restore(state).ok());
  auto loader = MakeLoader(resumed, 2);
  const std::vector<size_t> whole = Expected(3, 0);
  for (int64_t epoch = resumed->epoch(); epoch < 5; ++epoch) {
    resumed->SetEpoch(epoch);
    EXPECT_EQ(ReadEpoch(*loader), epoch == 3 ? std::vector<size_t>(whole.begin() + 24, whole.end())
                                             : Expected(epoch, 0));
  }
}

TEST(TorchDataSamplerTest, SavesToAnArchiveAndLoadsFromIt) {
  auto sampler = std::make_shared<DistributedSampler>(101, 2, 1);
  sampler->SetEpoch(2);
  sampler->Next(16);
  torch::serialize::OutputArchive output;
  TorchDataSampler(sampler).save(output);
  std::stringstream bytes;
  output.save_to(bytes);

  torch::serialize::InputArchive input;
  input.load_from(bytes);
  auto resumed = std::make_shared<DistributedSampler>(101, 2, 1);
  TorchDataSampler adapter(resumed);
  adapter.load(input);
  adapter.reset();
  EXPECT_EQ(adapter.next(200), sampler->Next(200));

  auto other = std::make_shared<DistributedSampler>(102, 2, 1);
  try {
    TorchDataSampler(other).load(input);
    FAIL() << "took the state of another dataset";
  } catch (const StatusError& error) {
    EXPECT_THAT(error.what(), HasSubstr("size=101"));
  }
}

TEST(TorchDataSamplerTest, RefusesAnArchiveWithoutAState) {
  torch::serialize::OutputArchive output;
  output.write("distributed_sampler", torch::zeros({2, 2}), /*is_buffer=*/true);
  std::stringstream bytes;
  output.save_to(bytes);
  torch::serialize::InputArchive input;
  input.load_from(bytes);
  TorchDataSampler adapter(std::make_shared<DistributedSampler>(10, 1, 0));
  EXPECT_THROW(adapter.load(input), c10::Error);
  EXPECT_THROW(TorchDataSampler(nullptr), std::invalid_argument);
}

TEST(TorchDataSamplerTest, TakesANewSize) {
  auto sampler = std::make_shared<DistributedSampler>(10, 2, 0, SamplerOptions{.seed = 5});
  sampler->SetEpoch(4);
  TorchDataSampler adapter(sampler);
  adapter.reset(40);
  DistributedSampler larger(40, 2, 0, {.seed = 5});
  larger.SetEpoch(4);
  EXPECT_EQ(adapter.next(40), larger.Next(40));
}

}  // namespace
}  // namespace medfusion
