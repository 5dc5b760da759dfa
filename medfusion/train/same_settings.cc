#include "medfusion/train/same_settings.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <nlohmann/json.hpp>

namespace medfusion {

absl::Status RequireSameSettings(ProcessGroup& group,
                                 const std::vector<std::pair<std::string, std::string>>& settings) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::vector<std::string> all =
      group.AllGatherBytes(nlohmann::json(settings).dump(-1, ' ', false, replace));
  const auto first = nlohmann::json::parse(all[0]).get<Settings>();
  std::vector<std::string> differences;
  for (int r = 1; r < group.size(); ++r) {
    const auto other = nlohmann::json::parse(all[r]).get<Settings>();
    for (size_t i = 0; i < first.size() && i < other.size(); ++i) {
      if (first[i] == other[i]) continue;
      differences.push_back(absl::StrCat(other[i].first, "=", other[i].second, " on rank ", r,
                                         ", but ", first[i].second, " on rank 0"));
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ranks were started differently: ", absl::StrJoin(differences, "; "),
                   "; start all ranks with the same flags and data"));
}

}  // namespace medfusion
