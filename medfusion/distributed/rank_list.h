// Ranks as people read them in messages.
#ifndef MEDFUSION_DISTRIBUTED_RANK_LIST_H_
#define MEDFUSION_DISTRIBUTED_RANK_LIST_H_

#include <string>
#include <vector>

namespace medfusion {

// "rank 3", "ranks 0, 2", "ranks 0-6, 9". `ranks` ascends and is not empty.
std::string RankList(const std::vector<int>& ranks);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_RANK_LIST_H_
