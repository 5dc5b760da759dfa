// Decides when units are paged in and out, and refuses what would read a parked parameter.
#ifndef MEDFUSION_FSDP_PAGER_H_
#define MEDFUSION_FSDP_PAGER_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_parameter.h"
#include "medfusion/fsdp/paged_storage.h"

namespace medfusion {

struct PagerOptions {
  int max_resident = 2;
  // Units stay in after a forward with gradients, and there is no limit: SHARD_GRAD_OP.
  bool keep_for_backward = false;
};

// Units are paged in when an operator touches them, and the least recently touched ones out when
// there are too many. Which rank does what depends on the operators alone, so ranks that run the
// same operators page in the same order; the first step compares them one by one, and later ones
// by a hash (TakeOrderHash).
//
// Not thread safe: belongs to the thread that runs forward, and to the one that runs backward while
// the former waits for it. Calls from another thread during forward are refused.
class Pager : public PageHandler {
 public:
  Pager(ProcessGroup& shard_group, const PagerOptions& options)
      : shard_group_(shard_group), options_(options) {}

  // Flat parameters in their order in the model, the same on all ranks.
  void SetUnits(std::vector<FlatParameter*> units) { units_ = std::move(units); }

  // Collective over the shard group, with the other ranks' same operator. Throws std::logic_error
  // that names the parameter when it is parked and nobody may page it in now, when the operator
  // would write to it, or when ranks touch different units.
  void BeforeOperator(std::string_view name, std::span<const PageAccess> accesses) override;

  // Around forward; nested calls on the same thread count as one. Another thread's throws
  // std::logic_error. Values may have changed since the last forward: the outermost call parks
  // everything.
  void BeginForward();
  // With `keep`, what backward is likely to need first stays in.
  void EndForward(bool keep);

  // Collective. Everything is in, and every operator allowed, until EndFull.
  void BeginFull(bool writable);
  void EndFull();
  bool full() const { return full_; }
  bool in_forward() const { return forward_depth_ > 0; }

  void Park(FlatParameter* unit);
  void ParkAll();

  // Of all page-ins since the last call, in order; positive.
  int64_t TakeOrderHash();
  // From here on, ranks' orders are no longer compared at every page-in.
  void EndLearning() { learning_ = false; }

 private:
  void RequirePermission(std::string_view name, std::span<const PageAccess> accesses) const;
  void Touch(FlatParameter* unit);
  void CompareWithOtherRanks(const FlatParameter* unit);
  void EvictBeyondLimit(size_t in_use);
  int IndexOf(const FlatParameter* unit) const;

  ProcessGroup& shard_group_;
  const PagerOptions options_;
  std::vector<FlatParameter*> units_;
  std::vector<FlatParameter*> resident_;  // least recently touched first
  int forward_depth_ = 0;
  std::thread::id forward_thread_;
  bool full_ = false;
  bool writable_ = false;
  bool learning_ = true;
  int64_t page_ins_ = 0;
  int64_t hash_ = 1;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_PAGER_H_
