// Reduces every unit's gradients once per backward, in an order that all ranks share.
#ifndef MEDFUSION_FSDP_GRADIENT_REDUCER_H_
#define MEDFUSION_FSDP_GRADIENT_REDUCER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_gradient.h"
#include "medfusion/fsdp/flat_parameter.h"
#include "medfusion/fsdp/full_buffers.h"
#include "medfusion/fsdp/pager.h"

namespace medfusion {

struct GradientReducerOptions {
  // Of full gradients and sums; absent: each parameter's compute dtype, but at least float32 where
  // the shard has more precision than that.
  std::optional<at::ScalarType> dtype;
  // Full gradients that may be on their way while another is collected. 0: backward waits for the
  // last reduction when the next unit's first gradient arrives.
  int max_in_flight = 0;
};

// Note [Reductions in one order]
// A parameter may be used on some ranks only, so units are complete at different moments on
// different ranks; collectives must start in one order all the same. A unit is sent as soon as all
// of its gradients are there and all units before it, in an order that is the same on all ranks,
// have been sent. What is left at the end of backward is incomplete somewhere; the ranks tell each
// other which parameters got a gradient on any of them (the report), and send those units' zeros
// too. A parameter without gradient on every rank keeps its gradient as it was, as it does on one
// rank alone. The order is the reverse of the model's in the first backward, and then rank 0's
// order of completion.
//
// A backward in which a rank computes no gradient at all does not reach the report, and leaves the
// others waiting until the timeout.
class GradientReducer {
 public:
  // `world` holds the reports; its order of collectives is the caller's care. Full gradients live
  // in `buffers`.
  GradientReducer(std::vector<FlatParameter*> units, ReduceGroups groups,
                  const GradientReducerOptions& options, ProcessGroup& world, Pager& pager,
                  FullBuffers& buffers);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // While suspended, gradients stay whole on each rank and add up. Calls nest.
  void Suspend() { ++suspended_; }
  void Resume() { --suspended_; }

  // Forgets a backward that failed. Does nothing otherwise.
  void Abandon() noexcept;
  // Forgets also what was added up while suspended.
  void Forget() noexcept;

 private:
  struct Unit {
    FlatParameter* parameter = nullptr;
    std::unique_ptr<FlatGradient> gradient;
    int trained = 0;  // members that require grad
    int arrived = 0;  // in this backward
    bool sent = false;
    int first_flag = 0;  // of its members in the report
  };

  void OnGradient(int unit, int member);
  void CheckGradient(const FlatParameter::Member& member) const;
  void SendCompleteUnits();
  void Send(int unit);
  void MakeRoom();
  void Finish();
  std::vector<char> ExchangeReport();
  void LearnOrder();
  void ResetBackward();

  const ReduceGroups groups_;
  const GradientReducerOptions options_;
  ProcessGroup& world_;
  Pager& pager_;
  std::vector<Unit> units_;
  int flags_ = 0;
  std::vector<int> order_;  // of sending
  bool learned_ = false;
  int suspended_ = 0;

  // This backward.
  int backward_ = -1;
  size_t next_ = 0;            // in order_
  std::vector<int> arrival_;   // units in order of completion
  std::deque<int> in_flight_;  // units whose reduction may not be over, oldest first
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_GRADIENT_REDUCER_H_
