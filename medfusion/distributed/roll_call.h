// Finding out who is missing, through the store that all ranks share.
#ifndef MEDFUSION_DISTRIBUTED_ROLL_CALL_H_
#define MEDFUSION_DISTRIBUTED_ROLL_CALL_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace medfusion {

// Runs `function` in a thread of its own and waits for it. False when it has not ended by the
// limit: it is then left behind, so it must own all that it uses. Exceptions of `function` are
// rethrown. For calls that have no timeout of their own: a c10d::TCPStore whose server is stopped
// never answers.
bool RunWithLimit(std::chrono::milliseconds limit, std::function<void()> function);

// Says in the store that rank `self` is alive and has failed at `occasion`, and waits at most
// `patience` for the same sign from the other `ranks`. Returns those that gave none. Every rank
// whose collective fails calls this, so the silent ones are those that died, hang or never failed.
// Does not throw: an unreachable store, which lives on rank 0, returns {-1}.
std::vector<int> FindSilentRanks(c10::intrusive_ptr<c10d::Store> store, const std::string& occasion,
                                 int self, const std::vector<int>& ranks,
                                 std::chrono::milliseconds patience);

// Waits until a call that differs or all calls with the same `sequence` of the group are in the
// store, and throws CollectiveError that quotes the first differing one, or names the ranks that
// did not call by the timeout.
void CompareCalls(c10d::Store& store, const std::string& group, int64_t sequence, int rank,
                  int size, const std::string& call, std::chrono::milliseconds timeout);

}  // namespace medfusion

#endif  // MEDFUSION_DISTRIBUTED_ROLL_CALL_H_
