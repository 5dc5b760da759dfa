#include "medfusion/ddp/join.h"

#include <utility>

namespace medfusion {

Join::Join(Replica& replica, const JoinOptions& options) : replica_(replica) {
  replica_.EnterJoin(options);
}

Join::~Join() { replica_.LeaveJoin(); }

void Join::Finish(const std::function<void()>& step) {
  if (std::exchange(finished_, true)) return;
  while (true) {
    const Replica::ShadowResult result = replica_.Shadow(/*keep_gradients=*/step != nullptr);
    if (result == Replica::ShadowResult::kEverybodyJoined) break;
    if (result == Replica::ShadowResult::kStepped && step) step();
  }
  replica_.SyncWithLastActive();
}

}  // namespace medfusion
