// What an FSDPWrapper does that does not depend on the module's type.
#ifndef MEDFUSION_FSDP_SHARDED_MODEL_H_
#define MEDFUSION_FSDP_SHARDED_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "medfusion/distributed/process_group.h"
#include "medfusion/fsdp/flat_parameter.h"
#include "medfusion/fsdp/full_buffers.h"
#include "medfusion/fsdp/gradient_norm.h"
#include "medfusion/fsdp/gradient_reducer.h"
#include "medfusion/fsdp/module_tree.h"
#include "medfusion/fsdp/optimizer_guard.h"
#include "medfusion/fsdp/options.h"
#include "medfusion/fsdp/pager.h"

namespace medfusion {

// One parameter as this rank holds it, for checkpoints.
struct ShardedTensor {
  std::string name;
  std::vector<int64_t> global_shape;
  std::vector<int64_t> global_strides;  // the order in which `offset` counts elements
  int64_t offset = 0;                   // of local's first element in the whole parameter
  at::Tensor local;                     // shares the shard's memory; possibly empty
};

class ShardedModel {
 public:
  // Collective. See FSDPWrapper's constructor.
  ShardedModel(ModuleTree tree, FSDPOptions options);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // Around the module's forward. Its destruction without End() says that forward threw.
  class ForwardScope {
   public:
    explicit ForwardScope(ShardedModel& model);
    ~ForwardScope();
    ForwardScope(const ForwardScope&) = delete;
    ForwardScope& operator=(const ForwardScope&) = delete;

    // Collective without gradients: ranks compare what they ran.
    void End();

   private:
    ShardedModel& model_;
    bool ended_ = false;
  };

  // Forward's arguments and result, in the dtypes that mixed precision asks for.
  at::Tensor CastInput(const at::Tensor& tensor) const;
  at::Tensor CastOutput(const at::Tensor& tensor) const;

  const std::vector<std::pair<std::string, at::Tensor>>& named_parameters() const {
    return slices_;
  }
  std::vector<ShardedTensor> DescribeState() const;
  void ZeroGrad(bool set_to_none);
  GradientNorm ClipGradNorm(double max_norm);
  int64_t nonfinite_gradients() const { return nonfinite_gradients_; }

  void BeginFull(bool writeback);
  void EndFull() { pager_->EndFull(); }
  GradientReducer& reducer() { return *reducer_; }

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  // Units in the model's order; a module whose parameters have several dtypes has one for each.
  const std::vector<std::unique_ptr<FlatParameter>>& units() const { return units_; }
  // Memory for whole parameters, and for whole gradients.
  const FullBuffers& full_buffers() const { return *buffers_; }
  const FullBuffers& gradient_buffers() const { return *gradient_buffers_; }

 private:
  void ResolveGroups(FSDPOptions& options);
  std::vector<PlannedUnit> PlanOnAllRanks(const ModuleTree& tree, const FSDPOptions& options) const;
  void MakeUnits(const ModuleTree& tree, const std::vector<PlannedUnit>& plan,
                 const FSDPOptions& options, const InitialValues& values);
  void MaterializeBuffers(const ModuleTree& tree, const InitialValues& values, bool sync) const;
  void ListSlices(const ModuleTree& tree);

  std::shared_ptr<ProcessGroup> group_;  // all ranks
  std::shared_ptr<ProcessGroup> shard_group_;
  ReduceGroups reduce_groups_;
  MixedPrecision mixed_precision_;
  std::unique_ptr<FullBuffers> buffers_;
  std::unique_ptr<FullBuffers> gradient_buffers_;
  std::unique_ptr<Pager> pager_;
  std::vector<std::unique_ptr<FlatParameter>> units_;
  std::vector<std::pair<int, int>> places_;  // by parameter: unit, member
  std::vector<std::pair<std::string, at::Tensor>> slices_;
  std::unique_ptr<GradientReducer> reducer_;
  LbfgsWatch lbfgs_watch_;
  int64_t nonfinite_gradients_ = 0;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_SHARDED_MODEL_H_
