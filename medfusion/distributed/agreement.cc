#include "medfusion/distributed/agreement.h"

#include <ATen/ops/full.h>
#include <absl/strings/str_cat.h>

#include <map>
#include <string>
#include <vector>

#include "medfusion/distributed/rank_list.h"

namespace medfusion {
namespace {

int64_t CountTrue(ProcessGroup& group, bool local) {
  at::Tensor count =
      at::full({1}, local ? 1 : 0, at::TensorOptions(at::kLong).device(group.device()));
  group.AllReduce(count)->Wait();
  return count.item<int64_t>();
}

}  // namespace

bool AnyRank(ProcessGroup& group, bool local) { return CountTrue(group, local) > 0; }

bool AllRanks(ProcessGroup& group, bool local) { return CountTrue(group, local) == group.size(); }

absl::Status AgreeOnStatus(ProcessGroup& group, const absl::Status& local) {
  if (!AnyRank(group, !local.ok())) return absl::OkStatus();
  std::string mine;
  if (!local.ok()) {
    mine = absl::StrCat(static_cast<int>(local.code()), " ", local.message());
  }
  const std::vector<std::string> all = group.AllGatherBytes(mine);
  int code = 0;
  std::map<std::string, std::vector<int>> ranks_by_text;
  std::vector<std::string> order;
  for (int r = 0; r < group.size(); ++r) {
    if (all[r].empty()) continue;
    const size_t space = all[r].find(' ');
    if (code == 0) code = std::stoi(all[r].substr(0, space));
    const std::string text = all[r].substr(space + 1);
    if (ranks_by_text[text].empty()) order.push_back(text);
    ranks_by_text[text].push_back(r);
  }
  std::string message;
  for (const std::string& text : order) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", RankList(ranks_by_text[text]), ": ",
                    text);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace medfusion
