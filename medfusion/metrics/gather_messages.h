// One message from every rank to every rank: the only collective that metrics are made of.
#ifndef MEDFUSION_METRICS_GATHER_MESSAGES_H_
#define MEDFUSION_METRICS_GATHER_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace medfusion {

class ProcessGroup;

// Messages up to this many bytes travel in one collective.
inline constexpr int64_t kShortMessageBytes = 2040;

// Collective. Every rank's message, in rank order; lengths may differ. One all-gather of
// kShortMessageBytes + 8 bytes per rank, and a second one, padded to the longest, where any message
// is longer; all ranks see the same lengths and so take the same path. No collective
// when `group` is null (a process alone) or has one rank. Blocks. Throws CollectiveError.
std::vector<std::string> GatherMessages(ProcessGroup* group, std::string_view message);

}  // namespace medfusion

#endif  // MEDFUSION_METRICS_GATHER_MESSAGES_H_
