// Averages gradients over the ranks while backward goes on. DDP and FSDP's NO_SHARD share it.
//
// A *round* begins with the first gradient of a backward (outside of no_sync) and ends when every
// bucket has been reduced, at the end of the backward that completed the last one.
#ifndef MEDFUSION_DDP_REDUCER_H_
#define MEDFUSION_DDP_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "medfusion/ddp/bucket_plan.h"
#include "medfusion/ddp/comm_hook.h"
#include "medfusion/ddp/gradient_buckets.h"
#include "medfusion/ddp/late_status.h"
#include "medfusion/ddp/round_outcome.h"
#include "medfusion/ddp/unused_parameters.h"
#include "medfusion/distributed/process_group.h"

namespace medfusion {

struct ReducerParameter {
  std::string name;
  at::Tensor tensor;
};

struct ReducerOptions {
  BucketLimits limits;
  // A parameter without a gradient counts as zero instead of being an error. Costs a small
  // all-reduce per step, and leaves out the rebuild of buckets.
  bool find_unused_parameters = false;
  // Plain all-reduce when empty.
  CommHook comm_hook;
};

// Construct with the same parameters (leaves that require grad, dense, floating point, on the
// group's device), in the same order, on all ranks; each parameter's grad then lives in the
// reducer's buckets (Note [Gradients live in buckets]). Hooks run on the thread that calls
// backward; the other methods belong to the same thread as the training loop. Does not own the
// module. Gradients stay valid after the reducer is gone.
class Reducer {
 public:
  Reducer(std::shared_ptr<ProcessGroup> group, std::vector<ReducerParameter> parameters,
          const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Before every forward that a backward may follow. Does nothing unless the last round is
  // incomplete; then it sends what the other ranks still wait for (collective with their backward,
  // or with their next BeginForward) and throws GradientError: names the parameters that got no
  // gradient, or says that backward failed. When backward failed on every rank, warns and returns:
  // the step is lost, the ranks are in step.
  void BeginForward();

  // With find_unused_parameters: what `outputs` do not depend on is taken as unused as soon as
  // backward begins, and need not be waited for. Without this call it is found at the end of
  // backward. Not collective.
  void MarkOutputs(std::span<const at::Tensor> outputs);

  // While suspended, gradients accumulate locally. Calls nest. Not collective, but suspend the same
  // backwards on all ranks.
  void Suspend() { ++suspended_; }
  void Resume() { --suspended_; }
  bool suspended() const { return suspended_ > 0; }

  // What sums are divided by; the group's size unless Join says otherwise. Same on all ranks.
  void set_divisor(int divisor) { divisor_ = divisor; }

  // Collective with the other ranks' backward: takes part in a round without a backward of its own.
  // Contributes zeros, gradients that were accumulated while suspended, and, with
  // `keep_gradients`, whatever grad holds; with it grad also receives the average.
  void Shadow(bool keep_gradients);

  // Parameters by bucket, in the order of sending.
  std::vector<std::vector<int>> plan() const { return buckets_.plan(); }
  const std::vector<ReducerParameter>& parameters() const { return parameters_; }

 private:
  void OnGradient(int index);
  void OnBackwardEnd();
  void CheckGradient(int index) const;

  void BeginRound();
  void MarkReady(int index, bool contributes);
  void MarkUnused(int index);
  void LaunchReadyBuckets(bool trouble);
  void Launch(int bucket, bool trouble);
  void LaunchReport(bool trouble);
  void Finish(RoundOutcome outcome);
  void WaitForBuckets();
  void WaitForReport();
  bool TroubleAnywhere(RoundOutcome outcome);
  void ResetRound();
  [[nodiscard]] std::string MissingGradients() const;

  void RebuildInOrderOfArrival(std::vector<int> order);
  bool HasReport() const { return options_.find_unused_parameters || options_.comm_hook; }

  const std::shared_ptr<ProcessGroup> group_;
  const std::vector<ReducerParameter> parameters_;
  const ReducerOptions options_;
  GradientBuckets buckets_;
  const std::vector<at::Tensor>& tensors_;  // of the parameters
  ParameterIndex index_;
  bool rebuilt_ = false;
  int suspended_ = 0;
  int divisor_ = 1;

  // The round.
  std::mutex mutex_;
  bool active_ = false;
  bool end_queued_ = false;  // OnBackwardEnd will be called, unless backward fails
  bool outputs_known_ = false;
  std::vector<char> reachable_;  // from outputs of forwards since the last round
  std::vector<char> used_;       // got a gradient since the last round, suspended or not
  std::vector<char> ready_;
  std::vector<char> keep_undefined_;  // ready, but grad was undefined and is to stay so if unused
  std::vector<at::Tensor> kept_;      // gradients as they were, of parameters unused here
  std::vector<int> arrival_;          // gradients in order of arrival
  std::vector<int> pending_;          // by bucket: members not ready
  int next_bucket_ = 0;               // the first that was not sent
  std::vector<WorkPtr> works_;        // by bucket sent
  at::Tensor report_;                 // [trouble, then used_ if asked for], summed over the ranks
  WorkPtr report_work_;
  LateStatus late_status_;  // of the round before
};

}  // namespace medfusion

#endif  // MEDFUSION_DDP_REDUCER_H_
