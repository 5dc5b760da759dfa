#include "medfusion/ddp/module_state.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace medfusion {

void RequireSameOnAllRanks(ProcessGroup& group, const std::vector<std::string>& entries) {
  const std::vector<std::string> all = group.AllGatherBytes(absl::StrJoin(entries, "\n"));
  if (std::all_of(all.begin(), all.end(), [&](const auto& text) { return text == all[0]; })) return;
  std::vector<std::vector<std::string>> lists;
  size_t longest = 0;
  for (const std::string& text : all) {
    lists.push_back(absl::StrSplit(text, '\n'));
    longest = std::max(longest, lists.back().size());
  }
  for (size_t i = 0; i < longest; ++i) {
    std::string values;
    bool same = true;
    for (size_t r = 0; r < lists.size(); ++r) {
      const std::string value = i < lists[r].size() ? lists[r][i] : "nothing more";
      same = same && i < lists[0].size() && value == lists[0][i];
      absl::StrAppend(&values, r == 0 ? "" : "; ", "rank ", r, " has ", value);
    }
    if (same) continue;
    throw std::invalid_argument(absl::StrCat("the ranks do not wrap the same module: ", values,
                                             ". Build it from the same code and options on every "
                                             "rank, before any rank-dependent change"));
  }
}

std::string DescribeTensor(const at::Tensor& tensor) {
  std::string text = absl::StrCat(std::string(c10::toString(tensor.scalar_type())), " [",
                                  absl::StrJoin(tensor.sizes(), ", "), "]");
  if (!tensor.is_contiguous()) {
    absl::StrAppend(&text, " strides [", absl::StrJoin(tensor.strides(), ", "), "]");
  }
  if (tensor.is_leaf() && tensor.requires_grad()) absl::StrAppend(&text, " requires_grad");
  return text;
}

CoalescedBroadcast::CoalescedBroadcast(ProcessGroup& group, std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)) {
  std::map<at::ScalarType, Piece> by_dtype;
  std::map<at::ScalarType, int64_t> numel;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    by_dtype[tensors_[i].scalar_type()].members.push_back(static_cast<int>(i));
    numel[tensors_[i].scalar_type()] += tensors_[i].numel();
  }
  for (auto& [dtype, piece] : by_dtype) {
    if (numel[dtype] == 0) continue;
    // Bytes, so that every dtype travels and arrives unchanged.
    piece.flat = group.Allocate(
        numel[dtype] * static_cast<int64_t>(tensors_[piece.members[0]].element_size()), at::kByte);
    pieces_.push_back(std::move(piece));
  }
}

void CoalescedBroadcast::Run(ProcessGroup& group, int root) {
  if (group.size() == 1) return;
  c10::AutoGradMode no_grad(false);
  std::vector<WorkPtr> works;
  // variable_data(): the same memory under another version counter.
  const auto each_part = [&](const Piece& piece, const auto& use) {
    const at::Tensor typed = piece.flat.view(tensors_[piece.members[0]].scalar_type());
    int64_t offset = 0;
    for (int member : piece.members) {
      at::Tensor whole = tensors_[member].variable_data();
      use(typed.narrow(0, offset, whole.numel()).view(whole.sizes()), whole);
      offset += whole.numel();
    }
  };
  for (Piece& piece : pieces_) {
    if (group.rank() == root) {
      each_part(piece, [](at::Tensor part, const at::Tensor& whole) { part.copy_(whole); });
    }
    works.push_back(group.Broadcast(piece.flat, root));
  }
  for (size_t p = 0; p < pieces_.size(); ++p) {
    works[p]->Wait();
    if (group.rank() == root) continue;
    each_part(pieces_[p], [](const at::Tensor& part, at::Tensor whole) { whole.copy_(part); });
  }
}

}  // namespace medfusion
