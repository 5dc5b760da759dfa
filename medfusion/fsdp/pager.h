// Decides when units are paged in and out, and refuses what would read a parked parameter.
#ifndef MEDFUSION_FSDP_PAGER_H_
#define MEDFUSION_FSDP_PAGER_H_

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_parameter.h"
#include "medfusion/fsdp/page_schedule.h"
#include "medfusion/fsdp/paged_storage.h"

namespace medfusion {

struct PagerOptions {
  // Units with memory at once, filled or being filled.
  int max_resident = 2;
  // How many units ahead of the one in use are gathered.
  int forward_prefetch = 1;
  int backward_prefetch = 1;
  // Units stay in after a forward with gradients, and there is no limit: SHARD_GRAD_OP.
  bool keep_for_backward = false;
};

// Note [Paging ahead]
// Units are paged in when an operator touches them. The first pass learns the order of touches, and
// ranks compare it, one page-in after another. From then on, a touch of one unit also starts the
// transfer of the next, while this thread computes. When memory is full, the unit that the order
// needs last goes out first (Belady's rule), and nothing is started ahead that would push out
// something needed earlier; without an order, the least recently touched one goes.
//
// What is started, and when, follows from the order and the touches alone, so ranks that run the
// same operators start the same transfers in the same order. Each pass ends with a check that they
// did. When a pass left the order on any rank, the ranks agree on a new one.
//
// There are two kinds of pass: a forward (or several) up to the end of its backward, and a forward
// without gradients.
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
  // After a forward that succeeded. What backward is likely to need first stays in; without
  // gradients the pass ends, which is collective. In the first passes ranks compare that all are
  // here.
  void EndForward();
  // After one that threw.
  void FailForward() noexcept;

  // What the ranks have to compare when a backward ends: the maximum over the ranks of all three
  // goes to EndBackward.
  struct Report {
    int64_t order_hash = 0;  // of all page-ins since the last report, in order; positive
    int64_t minus_order_hash = 0;
    int64_t deviated = 0;  // 1 when a pass has left the learned order, or none is learned
  };
  // This rank's. Collective over the shard group until an order is learned: ranks then compare that
  // all are here, and std::logic_error names the unit that one of them pages in instead.
  Report TakeReport();
  // Collective over the shard group when `joint` says that a rank has deviated. Throws
  // std::logic_error when ranks paged in different orders.
  void EndBackward(const Report& joint);
  // After a backward that reduced nothing, or that failed.
  void DropPass() noexcept;

  // Collective. Everything is in, and every operator allowed, until EndFull.
  void BeginFull(bool writable);
  void EndFull();
  bool full() const { return full_; }
  bool in_forward() const { return forward_depth_ > 0; }

  void Park(FlatParameter* unit) noexcept;
  void ParkAll() noexcept;

 private:
  using UnitList = c10::SmallVector<FlatParameter*, 4>;
  enum Kind { kTraining, kEvaluation };

  PageSchedule& schedule() { return schedules_[kind_]; }
  void RequirePermission(std::string_view name, std::span<const PageAccess> accesses) const;
  void MakeReadable(FlatParameter* unit, const UnitList& needed);
  void StartAhead(int count, const UnitList& needed);
  void Start(FlatParameter* unit);
  // What comes next: the page-in of a unit, by index, or the end of a pass.
  static constexpr int kForwardEnds = -1, kBackwardEnds = -2;
  void CompareWithOtherRanks(int step);
  std::string DescribeStep(int64_t step) const;
  size_t Limit() const;
  FlatParameter* Victim(const UnitList& kept);
  void CompareOrders(const Report& joint) const;
  void AgreeOnSchedule(PageSchedule& schedule);
  int IndexOf(const FlatParameter* unit) const;

  ProcessGroup& shard_group_;
  const PagerOptions options_;
  std::vector<FlatParameter*> units_;
  std::vector<FlatParameter*> in_memory_;  // least recently touched first
  FlatParameter* current_ = nullptr;       // touched last, readable
  PageSchedule schedules_[2];
  Kind kind_ = kTraining;
  bool pass_open_ = false;  // of training
  bool deviated_ = false;   // a training pass since the last report
  int forward_depth_ = 0;
  std::thread::id forward_thread_;
  bool full_ = false;
  bool writable_ = false;
  int64_t page_ins_ = 0;
  int64_t hash_ = 1;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_PAGER_H_
