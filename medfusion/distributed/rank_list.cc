#include "medfusion/distributed/rank_list.h"

#include <absl/strings/str_cat.h>

namespace medfusion {

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
    if (end - i == 2) absl::StrAppend(&text, ", ", ranks[end - 1]);
    if (end - i > 2) absl::StrAppend(&text, "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace medfusion
