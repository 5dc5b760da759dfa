// The train program's job over threads, and what it wrote.
#ifndef MEDFUSION_TESTS_TRAIN_FUSION_JOBS_H_
#define MEDFUSION_TESTS_TRAIN_FUSION_JOBS_H_

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "medfusion/base/atomic_file.h"
#include "medfusion/train/fusion_job.h"
#include "tests/testing/processes.h"
#include "tests/testing/ranks.h"

namespace medfusion {

inline FusionJobOptions Options(int64_t batch_size, int64_t epochs) {
  FusionJobOptions options;
  options.data = "examples/data/breast_cancer.csv";
  options.output_dir = testing::TemporaryFolder() + "/out";
  options.train.batch_size = batch_size;
  options.train.epochs = epochs;
  options.train.patience = 0;
  options.train.save_interval = 2;
  return options;
}

// In several units.
inline StrategyOptions Sharded(ShardingStrategy sharding) {
  return {.name = "fsdp", .sharding_strategy = sharding, .min_num_params = 600};
}

inline void RunJob(int ranks, const FusionJobOptions& options) {
  testing::RunRanks(ranks, [&](ProcessGroup& group) {
    const auto report = RunFusionJob(group.shared_from_this(), options);
    EXPECT_TRUE(report.ok()) << report.status();
  });
}

inline nlohmann::json Metrics(const FusionJobOptions& options) {
  return nlohmann::json::parse(ReadWholeFile(options.output_dir + "/metrics.json").value());
}

// Without the times, which no two runs share.
inline std::vector<nlohmann::json> History(const FusionJobOptions& options) {
  std::ifstream file(options.output_dir + "/history.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
    EXPECT_EQ(lines.back().erase("seconds"), 1u);
  }
  return lines;
}

}  // namespace medfusion

#endif  // MEDFUSION_TESTS_TRAIN_FUSION_JOBS_H_
