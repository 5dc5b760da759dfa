#include "medfusion/optim/fused_adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "medfusion/optim/fused_step.h"

namespace medfusion {
namespace {

using torch::optim::Optimizer;

template <typename State>
State& StateOf(Optimizer& optimizer, const StepMember& member) {
  auto& state = optimizer.state()[member.key()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

// The arguments of one kernel call.
struct KernelLists {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
};

template <typename State>
KernelLists ListBatch(Optimizer& optimizer, const StepBatch& batch, bool amsgrad) {
  KernelLists lists;
  std::map<int64_t, at::Tensor> steps;  // kernels read them only, so runs of one age share one
  for (const StepRun& run : batch.runs) {
    std::vector<at::Tensor*> exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
    for (const StepMember& member : run.members) {
      auto& state = StateOf<State>(optimizer, member);
      exp_avgs.push_back(&state.exp_avg());
      exp_avg_sqs.push_back(&state.exp_avg_sq());
      max_exp_avg_sqs.push_back(&state.max_exp_avg_sq());
    }
    at::Tensor exp_avg = JoinStates(run, exp_avgs);
    at::Tensor exp_avg_sq = JoinStates(run, exp_avg_sqs);
    at::Tensor max_exp_avg_sq = amsgrad ? JoinStates(run, max_exp_avg_sqs) : at::Tensor();
    if (run.parameter.numel() == 0) continue;
    at::Tensor& step = steps[run.members.front().age + 1];
    if (!step.defined()) {
      step = at::full(
          {}, run.members.front().age + 1,
          at::TensorOptions(batch.device).dtype(batch.device.is_cpu() ? at::kLong : at::kFloat));
    }
    lists.parameters.push_back(run.parameter);
    lists.gradients.push_back(run.gradient);
    lists.exp_avgs.push_back(std::move(exp_avg));
    lists.exp_avg_sqs.push_back(std::move(exp_avg_sq));
    if (amsgrad) lists.max_exp_avg_sqs.push_back(std::move(max_exp_avg_sq));
    lists.steps.push_back(step);
  }
  return lists;
}

template <typename State>
void FinishBatch(Optimizer& optimizer, const StepBatch& batch) {
  for (const StepRun& run : batch.runs) {
    MarkChanged(run);
    for (const StepMember& member : run.members) {
      StateOf<State>(optimizer, member).step(member.age + 1);
    }
  }
}

// `kernel` is at::_fused_adam_ or at::_fused_adamw_.
template <typename State, typename Options, typename Kernel>
void Step(Optimizer& optimizer, std::string_view name, Kernel kernel) {
  auto& states = optimizer.state();
  std::vector<std::vector<StepMember>> groups;
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    groups.push_back(CollectMembers(
        optimizer.param_groups()[g], g, name, /*allow_sparse=*/false,
        [&](const at::Tensor& parameter) {
          const auto found = states.find(parameter.unsafeGetTensorImpl());
          return found == states.end() ? 0 : static_cast<const State&>(*found->second).step();
        }));
    for (const StepMember& member : groups.back()) {
      const auto found = states.find(member.key());
      if (found == states.end()) continue;
      const State& state = static_cast<const State&>(*found->second);
      CheckState(member, state.exp_avg(), "exp_avg");
      CheckState(member, state.exp_avg_sq(), "exp_avg_sq");
      CheckState(member, state.max_exp_avg_sq(), "max_exp_avg_sq");
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const Options&>(optimizer.param_groups()[g].options());
    const auto [beta1, beta2] = options.betas();
    for (const StepBatch& batch : MakeBatches(std::move(groups[g]))) {
      const KernelLists lists = ListBatch<State>(optimizer, batch, options.amsgrad());
      if (!lists.parameters.empty()) {
        kernel(lists, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
               options.amsgrad());
      }
      FinishBatch<State>(optimizer, batch);
    }
  }
}

at::Tensor Evaluate(const Optimizer::LossClosure& closure) {
  if (closure == nullptr) return {};
  at::AutoGradMode with_gradients(true);
  return closure();
}

}  // namespace

at::Tensor FusedAdamW::step(LossClosure closure) {
  at::NoGradGuard no_grad;
  at::Tensor loss = Evaluate(closure);
  Step<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
      *this, "FusedAdamW",
      [](const KernelLists& lists, double lr, double beta1, double beta2, double weight_decay,
         double eps, bool amsgrad) {
        at::_fused_adamw_(lists.parameters, lists.gradients, lists.exp_avgs, lists.exp_avg_sqs,
                          lists.max_exp_avg_sqs, lists.steps, lr, beta1, beta2, weight_decay, eps,
                          amsgrad, /*maximize=*/false);
      });
  return loss;
}

at::Tensor FusedAdam::step(LossClosure closure) {
  at::NoGradGuard no_grad;
  at::Tensor loss = Evaluate(closure);
  Step<torch::optim::AdamParamState, torch::optim::AdamOptions>(
      *this, "FusedAdam",
      [](const KernelLists& lists, double lr, double beta1, double beta2, double weight_decay,
         double eps, bool amsgrad) {
        at::_fused_adam_(lists.parameters, lists.gradients, lists.exp_avgs, lists.exp_avg_sqs,
                         lists.max_exp_avg_sqs, lists.steps, lr, beta1, beta2, weight_decay, eps,
                         amsgrad, /*maximize=*/false);
      });
  return loss;
}

}  // namespace medfusion
