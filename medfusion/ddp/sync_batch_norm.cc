#include "medfusion/ddp/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <absl/strings/str_cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace medfusion {
namespace {

// Note [Intercepting batch norm]
// LibTorch's modules cannot be replaced inside a C++ model: its members have static types, and
// BatchNorm's forward is not virtual. But every batch norm is the operator aten::batch_norm, and
// dispatch keys that a thread includes see each operator before autograd does. This key is
// LibTorch's for modes of that kind; nothing else uses it. All operators but two fall through it.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local std::shared_ptr<ProcessGroup> scope_group;

// [C] as something that broadcasts over [N, C, *].
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[1] = values.numel();
  return values.to(like.scalar_type()).view(shape);
}

std::vector<int64_t> AllButChannel(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

struct Statistics {
  at::Tensor mean;      // [C], float64
  at::Tensor variance;  // [C], float64, biased
  double count = 0;
};

// Gathers every rank's mean, sum of squared deviations and count, and combines them as one would
// combine partial batches (Chan et al., 1979): no cancellation, unlike sums of squares.
Statistics JointStatistics(ProcessGroup& group, const at::Tensor& input) {
  const int64_t channels = input.size(1);
  const auto on_device = input.options().dtype(at::kDouble);
  const double local_count = static_cast<double>(input.numel() / std::max<int64_t>(channels, 1));
  at::Tensor local = at::zeros({2 * channels + 1}, on_device);
  if (local_count > 0) {
    const auto [variance, mean] =
        at::var_mean(input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16
                         ? input.to(at::kFloat)
                         : input,
                     AllButChannel(input), /*correction=*/0, /*keepdim=*/false);
    local.narrow(0, 0, channels).copy_(mean);
    local.narrow(0, channels, channels).copy_(variance.to(at::kDouble) * local_count);
  }
  local.narrow(0, 2 * channels, 1).fill_(local_count);
  at::Tensor all = at::zeros({group.size(), 2 * channels + 1}, on_device);
  group.AllGather(all, local)->Wait();
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor squares = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  Statistics joint;
  joint.count = counts.sum().item<double>();
  joint.mean = (means * counts).sum(0) / joint.count;
  joint.variance = (squares.sum(0) + (counts * (means - joint.mean).square()).sum(0)) / joint.count;
  return joint;
}

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(std::shared_ptr<ProcessGroup> g) : group(std::move(g)) {}
  std::shared_ptr<ProcessGroup> group;
};

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight_or_none,
                            const std::optional<at::Tensor>& bias_or_none,
                            const std::shared_ptr<ProcessGroup>& group, const Statistics& joint,
                            double eps) {
    // Undefined tensors are not taken by Function, empty optionals are.
    const at::Tensor weight = weight_or_none.value_or(at::Tensor());
    const at::Tensor bias = bias_or_none.value_or(at::Tensor());
    const at::Tensor inverse = (joint.variance + eps).rsqrt();
    const at::Tensor centred = input - PerChannel(joint.mean, input);
    at::Tensor output = centred * PerChannel(inverse, input);
    if (weight.defined()) output = output * PerChannel(weight, output);
    if (bias.defined()) output = output + PerChannel(bias, output);
    context->save_for_backward({input, weight, bias, joint.mean, inverse});
    context->saved_data["count"] = joint.count;
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor &mean = saved[3], &inverse = saved[4];
    const double count = context->saved_data["count"].toDouble();
    ProcessGroup& group =
        *static_cast<GroupHolder*>(context->saved_data["group"].toCapsule().get())->group;
    const at::Tensor& gradient = gradients[0];
    const int64_t channels = input.size(1);
    const at::Tensor normal = (input - PerChannel(mean, input)) * PerChannel(inverse, input);
    // Of this rank: the sums of gradient and of gradient * normal, which are also those of bias and
    // weight.
    at::Tensor sums = at::zeros({2, channels}, mean.options());
    sums[0].copy_(gradient.sum(AllButChannel(input)));
    sums[1].copy_((gradient * normal).sum(AllButChannel(input)));
    at::Tensor weight_gradient, bias_gradient;
    if (weight.defined()) weight_gradient = sums[1].to(weight.scalar_type());
    if (bias.defined()) bias_gradient = sums[0].to(bias.scalar_type());
    at::Tensor joint = sums.clone();
    group.AllReduce(joint)->Wait();
    joint.div_(count);
    at::Tensor scale = inverse;
    if (weight.defined()) scale = scale * weight.to(at::kDouble);
    const at::Tensor input_gradient =
        (gradient - PerChannel(joint[0], input) - normal * PerChannel(joint[1], input)) *
        PerChannel(scale, input);
    return {input_gradient, weight_gradient, bias_gradient, {}, {}, {}};
  }
};

void UpdateRunning(const at::Tensor& running, const at::Tensor& value, double momentum) {
  at::NoGradGuard no_grad;
  // Under another version counter: a second forward before backward is no in-place change.
  at::Tensor target = running.variable_data();
  target.mul_(1 - momentum).add_(value.to(target.scalar_type()), momentum);
}

std::optional<at::Tensor> OrNone(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor : std::nullopt;
}

at::Tensor InterceptedBatchNorm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                const std::optional<at::Tensor>& bias,
                                const std::optional<at::Tensor>& running_mean,
                                const std::optional<at::Tensor>& running_var, bool training,
                                double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  if (training && scope_group != nullptr) {
    return SyncBatchNorm(scope_group, input, weight, bias, running_mean, running_var, momentum,
                         eps);
  }
  return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                        cudnn_enabled);
}

// It is made of batch norms, of the samples of one image each.
at::Tensor UnchangedInstanceNorm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias,
                                 const std::optional<at::Tensor>& running_mean,
                                 const std::optional<at::Tensor>& running_var, bool use_input_stats,
                                 double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  return at::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
                           momentum, eps, cudnn_enabled);
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", InterceptedBatchNorm);
  library.impl("instance_norm", UnchangedInstanceNorm);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor SyncBatchNorm(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& input,
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias,
                         const std::optional<at::Tensor>& running_mean,
                         const std::optional<at::Tensor>& running_var, double momentum,
                         double eps) {
  if (input.dim() < 2) {
    throw std::invalid_argument(
        absl::StrCat("SyncBatchNorm: the input has ", input.dim(),
                     " dimensions; expected at least 2, [batch, channels, ...]"));
  }
  Statistics joint;
  {
    at::NoGradGuard no_grad;
    joint = JointStatistics(*group, input.detach());
  }
  if (joint.count <= 1) {
    throw std::invalid_argument(absl::StrCat("SyncBatchNorm: ", joint.count,
                                             " values per channel over all ranks; training needs "
                                             "more than one"));
  }
  if (running_mean && running_mean->defined()) UpdateRunning(*running_mean, joint.mean, momentum);
  if (running_var && running_var->defined()) {
    UpdateRunning(*running_var, joint.variance * (joint.count / (joint.count - 1)), momentum);
  }
  return SyncBatchNormFunction::apply(input, OrNone(weight), OrNone(bias), group, joint, eps);
}

struct SyncBatchNormScope::State {
  explicit State(std::shared_ptr<ProcessGroup> group)
      : previous(std::exchange(scope_group, std::move(group))), include(kKey) {}
  ~State() { scope_group = std::move(previous); }
  std::shared_ptr<ProcessGroup> previous;
  c10::impl::IncludeDispatchKeyGuard include;
};

SyncBatchNormScope::SyncBatchNormScope(std::shared_ptr<ProcessGroup> group)
    : state_(std::make_unique<State>(std::move(group))) {}

SyncBatchNormScope::~SyncBatchNormScope() = default;

}  // namespace medfusion
