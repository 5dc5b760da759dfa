// The train program as a process, for tests.
#ifndef MEDFUSION_TESTS_TRAIN_TRAIN_PROGRAM_H_
#define MEDFUSION_TESTS_TRAIN_TRAIN_PROGRAM_H_

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "medfusion/base/atomic_file.h"
#include "tests/testing/processes.h"

namespace medfusion::testing {

using Environment = std::map<std::string, std::optional<std::string>>;

// Starts it in `folder`, as a user would from there.
inline TestProcess StartTrain(const std::string& folder, std::vector<std::string> arguments,
                              Environment environment = {}) {
  ChildOptions options;
  options.program = std::filesystem::absolute("examples/train").string();
  options.arguments = {options.program};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = std::move(environment);
  options.working_directory = folder;
  return TestProcess::Start(options);
}

inline nlohmann::json ReadMetrics(const std::string& folder) {
  return nlohmann::json::parse(ReadWholeFile(folder + "/train_output/metrics.json").value());
}

// The lines of history.jsonl without their times.
inline std::vector<nlohmann::json> ReadHistory(const std::string& folder) {
  std::ifstream file(folder + "/train_output/history.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
    lines.back().erase("seconds");
  }
  return lines;
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TRAIN_TRAIN_PROGRAM_H_
