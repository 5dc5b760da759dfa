// The order in which a pass (forward and backward, or an evaluation) touches units: recorded, and
// used to foresee the next pass. Pure logic; neither tensors nor ranks.
#ifndef MEDFUSION_FSDP_PAGE_SCHEDULE_H_
#define MEDFUSION_FSDP_PAGE_SCHEDULE_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace medfusion {

// Units are numbers from 0. A touch is a change from one unit to another; operators on the same
// unit in a row are one touch.
//
// Everything it answers follows from the learned order and the touches of this pass. Ranks that
// learned the same order and touch the same units get the same answers, so that what they start
// ahead of need, they start in one order.
class PageSchedule {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Replaces the order; empty: nothing is foreseen.
  void Learn(std::vector<int> order);
  bool learned() const { return learned_; }

  // A pass begins.
  void Start();
  // The pass goes on with `unit`, which is in memory or not. A unit that is not next, but in
  // memory, changes nothing (ranks may differ in such touches); one that is neither is looked for
  // later in the order, and when it is not there nothing more is foreseen in this pass.
  void Touch(int unit, bool in_memory);

  // True when this pass has left the learned order; first_deviation() is the unit with which it
  // did.
  bool deviated() const { return first_deviation_ >= 0; }
  int first_deviation() const { return first_deviation_; }
  // This pass so far. At most 65536 touches are kept.
  const std::vector<int>& recorded() const { return recorded_; }

  // How many touches from now `unit` is touched next; kNever when nobody knows.
  int64_t NextUse(int unit) const;
  // The next `count` different units after the one that is touched now, soonest first.
  std::vector<int> Upcoming(int count) const;

 private:
  std::vector<int> order_;
  std::vector<std::vector<int64_t>> positions_;  // by unit, ascending
  std::vector<int> recorded_;
  int64_t next_ = 0;  // in order_
  bool learned_ = false;
  int first_deviation_ = -1;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_PAGE_SCHEDULE_H_
