// The models and the data together: the example's data is learned well by one process in seconds.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "medfusion/data/batch_loader.h"
#include "medfusion/data/csv.h"
#include "medfusion/data/feature_groups.h"
#include "medfusion/data/shuffle.h"
#include "medfusion/data/split.h"
#include "medfusion/data/standardizer.h"
#include "medfusion/data/tabular_dataset.h"
#include "medfusion/models/fusion_classifier.h"

namespace medfusion {
namespace {

constexpr char kPath[] = "examples/data/breast_cancer.csv";

TabularDataset Load() {
  const auto table = ReadCsv(kPath, {.text_columns = {"diagnosis"}});
  return TabularDataset::Create(table.value(),
                                {.target = "diagnosis", .positive_class = "malignant"})
      .value();
}

std::vector<FeatureGroup> Groups(const TabularDataset& dataset) {
  const auto specs = ParseFeatureGroups("mean:mean_*;error:error_*;worst:worst_*");
  return SelectFeatureGroups(dataset.feature_names(), specs.value()).value();
}

// The probability that a positive sample scores higher than a negative one, ties counting half
// (Mann and Whitney's U statistic).
double Auroc(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor positive = scores.masked_select(targets == 1).unsqueeze(1);
  const at::Tensor negative = scores.masked_select(targets == 0).unsqueeze(0);
  const at::Tensor wins =
      (positive > negative).to(torch::kDouble) + 0.5 * (positive == negative).to(torch::kDouble);
  return wins.mean().item<double>();
}

double TrainAndTest(const TabularDataset& raw, uint64_t split_seed, uint64_t seed) {
  const Split split = StratifiedSplit(raw.labels(), {}, split_seed).value();
  const auto standardizer = Standardizer::Fit(raw.features(), split.train).value();
  const TabularDataset dataset = raw.Standardized(standardizer);

  torch::manual_seed(seed);
  FusionClassifierOptions options;
  options.groups = GroupColumns(Groups(raw));
  FusionClassifier model(options);
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(2e-3).weight_decay(1));
  std::mt19937_64 generator(seed);
  std::vector<size_t> order = split.train;
  for (int epoch = 0; epoch < 10; ++epoch) {
    Shuffle(order, generator);
    size_t next = 0;
    BatchLoader loader(
        [&](size_t batch_size) -> std::optional<std::vector<size_t>> {
          if (next == order.size()) return std::nullopt;
          const size_t end = std::min(next + batch_size, order.size());
          const std::vector<size_t> indices(order.begin() + next, order.begin() + end);
          next = end;
          return indices;
        },
        dataset, 32);
    while (const auto batch = loader.Next()) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model->forward(batch->features), batch->targets)
          .backward();
      optimizer.step();
    }
  }
  model->eval();
  torch::NoGradGuard no_grad;
  const Batch test = dataset.Get(split.test);
  return Auroc(model->forward(test.features).softmax(1).select(1, 1), test.targets);
}

TEST(BreastCancerTest, TheTableHoldsWhatItsSourceSays) {
  const TabularDataset dataset = Load();
  EXPECT_EQ(dataset.features().sizes(), (std::vector<int64_t>{569, 30}));
  EXPECT_EQ(dataset.targets().sum().item<int64_t>(), 212);
  for (const FeatureGroup& group : Groups(dataset)) EXPECT_EQ(group.columns.size(), 10u);
  // Extremes of the radius and of the worst area, from the data's description.
  EXPECT_FLOAT_EQ(dataset.features().select(1, 0).min().item<float>(), 6.981f);
  EXPECT_FLOAT_EQ(dataset.features().select(1, 0).max().item<float>(), 28.11f);
  EXPECT_FLOAT_EQ(dataset.features().select(1, 23).max().item<float>(), 4254.f);
}

TEST(BreastCancerTest, FusionReachesAnAurocOf98PercentOnTheTestPart) {
  torch::set_num_threads(1);
  const TabularDataset dataset = Load();
  for (const uint64_t seed : {0, 1, 2}) {
    EXPECT_GE(TrainAndTest(dataset, seed, seed), 0.98) << "seed " << seed;
  }
}

TEST(BreastCancerTest, TrainingIsReproducible) {
  torch::set_num_threads(1);
  const TabularDataset dataset = Load();
  EXPECT_EQ(TrainAndTest(dataset, 3, 5), TrainAndTest(dataset, 3, 5));
}

}  // namespace
}  // namespace medfusion
