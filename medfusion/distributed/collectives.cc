// The tensor collectives of ProcessGroup.
#include <ATen/ops/empty.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <utility>

#include "medfusion/distributed/c10d_adapter.h"
#include "medfusion/distributed/process_group.h"
#include "medfusion/distributed/process_group_engine.h"
#include "medfusion/distributed/reductions.h"

namespace medfusion {
namespace {

void RequireAveragable(std::string_view call, const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::kAverage && !tensor.is_floating_point()) {
    throw std::invalid_argument(absl::StrCat(std::string(call), "(average): the tensor is ",
                                             DescribeForCall(tensor),
                                             "; integers cannot be averaged, sum them"));
  }
}

// For groups of one rank.
void CopyFlat(const at::Tensor& output, const at::Tensor& input) {
  at::NoGradGuard no_grad;
  if (output.data_ptr() != input.data_ptr()) output.view({-1}).copy_(input.view({-1}));
}

}  // namespace

WorkPtr ProcessGroup::AllReduce(at::Tensor tensor, ReduceOp op) {
  CheckTensor("AllReduce", "tensor", tensor);
  RequireAveragable("AllReduce", tensor, op);
  const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
  const std::string text =
      absl::StrCat("AllReduce(", ReduceOpName(op), ") of ", DescribeForCall(tensor));
  if (FewRanks()) {
    return Run({text, DirectExchange::AllReduceBytesSent(bytes, size_)},
               [&] { return engine_->exchange->AllReduce(tensor, op); });
  }
  Finish finish;
  if (op == ReduceOp::kAverage && size_ > 1) {
    finish = [tensor, size = size_]() mutable {
      at::NoGradGuard no_grad;
      tensor.div_(size);
    };
  }
  return RunC10d(
      {text, 2 * bytes * (size_ - 1) / size_},
      [&] {
        std::vector<at::Tensor> tensors{tensor};
        c10d::AllreduceOptions options;
        options.reduceOp = ToC10d(op);
        return engine_->backend->allreduce(tensors, options);
      },
      std::move(finish));
}

WorkPtr ProcessGroup::AllGather(at::Tensor output, at::Tensor input) {
  CheckTensor("AllGather", "output", output);
  CheckTensor("AllGather", "input", input);
  if (output.numel() != input.numel() * size_ || output.scalar_type() != input.scalar_type()) {
    throw std::invalid_argument(absl::StrCat("AllGather on group '", name_, "': output is ",
                                             DescribeForCall(output), ", expected ", size_,
                                             " times the input's ", input.numel(), " elements of ",
                                             std::string(c10::toString(input.scalar_type()))));
  }
  const Call call{absl::StrCat("AllGather of ", DescribeForCall(input)),
                  static_cast<int64_t>(input.nbytes()) * (size_ - 1)};
  if (FewRanks()) {
    return Run(call, [&] { return engine_->exchange->AllGather(output, input); });
  }
  at::Tensor flat_output = output.view({-1});
  at::Tensor flat_input = input.view({-1});
  Finish finish;
  if (size_ == 1) finish = [output, input] { CopyFlat(output, input); };
  return RunC10d(
      call, [&] { return c10d_adapter::AllGather(*engine_->backend, flat_output, flat_input); },
      std::move(finish));
}

// Note [Reduce-scatter on Gloo]
// Gloo reduces the whole tensor on every rank and slices: 2(n-1)/n of the data sent. Exchanging the
// parts sends (n-1)/n, and lets this rank choose the order and the precision of its sum; so it is
// direct however many ranks there are.
WorkPtr ProcessGroup::ReduceScatter(at::Tensor output, at::Tensor input, ReduceOp op) {
  CheckTensor("ReduceScatter", "output", output);
  CheckTensor("ReduceScatter", "input", input);
  RequireAveragable("ReduceScatter", input, op);
  if (input.numel() != output.numel() * size_ || output.scalar_type() != input.scalar_type()) {
    throw std::invalid_argument(
        absl::StrCat("ReduceScatter on group '", name_, "': input is ", DescribeForCall(input),
                     ", expected ", size_, " times the output's ", output.numel(), " elements of ",
                     std::string(c10::toString(output.scalar_type()))));
  }
  const Call call{absl::StrCat("ReduceScatter(", ReduceOpName(op), ") of ", DescribeForCall(input)),
                  static_cast<int64_t>(input.nbytes()) * (size_ - 1) / size_};
  if (engine_->exchange) {
    return Run(call, [&] { return engine_->exchange->ReduceScatter(output, input, op); });
  }
  at::Tensor flat_output = output.view({-1});
  at::Tensor flat_input = input.view({-1});
  c10d::ReduceScatterOptions options;
  options.reduceOp = ToC10d(op);
  return RunC10d(
      call,
      [&] {
        return c10d_adapter::ReduceScatter(*engine_->backend, flat_output, flat_input, options);
      },
      [output, input, op, size = size_]() mutable {
        at::NoGradGuard no_grad;
        if (size == 1) CopyFlat(output, input);
        if (op == ReduceOp::kAverage) output.div_(size);
      });
}

WorkPtr ProcessGroup::Broadcast(at::Tensor tensor, int root) {
  CheckTensor("Broadcast", "tensor", tensor);
  if (root < 0 || root >= size_) {
    throw std::invalid_argument(absl::StrCat("Broadcast on group '", name_, "': root ", root,
                                             " is out of range; expected 0..", size_ - 1));
  }
  return RunC10d(
      {absl::StrCat("Broadcast from rank ", root, " of ", DescribeForCall(tensor)),
       rank_ == root ? static_cast<int64_t>(tensor.nbytes()) : 0},
      [&] {
        std::vector<at::Tensor> tensors{tensor};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        return engine_->backend->broadcast(tensors, options);
      },
      nullptr);
}

WorkPtr ProcessGroup::AllToAll(at::Tensor output, at::Tensor input,
                               std::vector<int64_t> output_sizes,
                               std::vector<int64_t> input_sizes) {
  CheckTensor("AllToAll", "output", output);
  CheckTensor("AllToAll", "input", input);
  const auto check = [&](const char* side, const at::Tensor& tensor,
                         const std::vector<int64_t>& sizes) {
    int64_t total = 0;
    for (int64_t size : sizes) total += size;
    const bool fits = sizes.empty()
                          ? tensor.numel() % size_ == 0
                          : static_cast<int>(sizes.size()) == size_ && total == tensor.numel() &&
                                *std::min_element(sizes.begin(), sizes.end()) >= 0;
    if (!fits) {
      throw std::invalid_argument(
          absl::StrCat("AllToAll on group '", name_, "': ", side, " ", DescribeForCall(tensor),
                       " does not divide into ", size_, " parts",
                       sizes.empty() ? " of equal size"
                                     : absl::StrCat(" of [", absl::StrJoin(sizes, ", "), "]")));
    }
  };
  check("output", output, output_sizes);
  check("input", input, input_sizes);
  if (output_sizes.empty() != input_sizes.empty()) {
    throw std::invalid_argument("AllToAll: give both output_sizes and input_sizes, or neither");
  }
  int64_t own = input.numel() / size_;
  if (!input_sizes.empty()) own = input_sizes[rank_];
  Finish finish;
  if (size_ == 1) finish = [output, input] { CopyFlat(output, input); };
  at::Tensor flat_output = output.view({-1});
  at::Tensor flat_input = input.view({-1});
  const std::string described = input_sizes.empty()
                                    ? DescribeForCall(input)
                                    : std::string(c10::toString(input.scalar_type()));
  return RunC10d(
      {absl::StrCat("AllToAll of ", described), (input.numel() - own) * input.element_size()},
      [&] {
        return c10d_adapter::AllToAll(*engine_->backend, flat_output, flat_input, output_sizes,
                                      input_sizes);
      },
      std::move(finish));
}

}  // namespace medfusion
