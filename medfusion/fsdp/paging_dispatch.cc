// Note [Parameters that call before they are used]: the fallback itself.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <stdexcept>
#include <string_view>
#include <unordered_set>

#include "medfusion/fsdp/paged_storage.h"

namespace medfusion {
namespace {

struct Found {
  PageHandler* handler;
  PageAccess access;
};
using FoundList = c10::SmallVector<Found, 8>;

// Operators that look at a tensor's shape but not at its values. Without them a view or a
// zeros_like of a parameter would page its unit in, or be an error outside of forward.
bool ReadsNoValues(const std::string& name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::alias",
      "aten::as_strided",
      "aten::chunk",
      "aten::detach",
      "aten::detach_",
      "aten::diagonal",
      "aten::empty_like",
      "aten::expand",
      "aten::expand_as",
      "aten::full_like",
      "aten::is_leaf",
      "aten::is_same_size",
      "aten::narrow",
      "aten::new_empty",
      "aten::new_empty_strided",
      "aten::new_full",
      "aten::new_ones",
      "aten::new_zeros",
      "aten::numel",
      "aten::ones_like",
      "aten::output_nr",
      "aten::permute",
      "aten::rand_like",
      "aten::randn_like",
      "aten::requires_grad_",
      "aten::select",
      "aten::size",
      "aten::slice",
      "aten::split",
      "aten::split_with_sizes",
      "aten::squeeze",
      "aten::stride",
      "aten::t",
      "aten::transpose",
      "aten::unbind",
      "aten::unsqueeze",
      "aten::view",
      "aten::view_as",
      "aten::zeros_like",
      "aten::_version",
      "aten::_has_compatible_shallow_copy_type",
  };
  return kNames.count(name) > 0;
}

void Look(const at::Tensor& tensor, bool writes, FoundList& found) {
  if (!tensor.defined() || !tensor.key_set().has(kPagedKey) || !tensor.has_storage()) return;
  auto* storage = dynamic_cast<PagedStorage*>(tensor.storage().unsafeGetStorageImpl());
  if (storage == nullptr) return;
  if (storage->handler == nullptr) {
    throw std::logic_error(
        "a parameter of a module is used after its FSDPWrapper was destroyed; keep the wrapper as "
        "long as the module, or save the values inside FullParameters");
  }
  found.push_back({storage->handler, {storage->flat, tensor.storage_offset(), writes}});
}

void LookIn(const c10::IValue& value, bool writes, FoundList& found) {
  if (value.isTensor()) {
    Look(value.toTensor(), writes, found);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!element.isTensor()) return;
      Look(element.toTensor(), writes, found);
    }
  }
}

FoundList FindPagedArguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  FoundList found;
  const auto& arguments = schema.arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    LookIn(stack[first + i], alias != nullptr && alias->isWrite(), found);
  }
  return found;
}

void BeforeOperator(const std::string& name, const FoundList& found) {
  // One operator may mix parameters of several wrapped modules: each handler gets its own once.
  for (size_t i = 0; i < found.size(); ++i) {
    PageHandler* handler = found[i].handler;
    bool seen = false;
    for (size_t j = 0; j < i; ++j) seen |= found[j].handler == handler;
    if (seen) continue;
    c10::SmallVector<PageAccess, 8> accesses;
    for (size_t j = i; j < found.size(); ++j) {
      if (found[j].handler == handler) accesses.push_back(found[j].access);
    }
    handler->BeforeOperator(name, {accesses.data(), accesses.size()});
  }
}

void PageInThenRun(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!ReadsNoValues(schema.name())) {
    BeforeOperator(schema.name(), FindPagedArguments(schema, *stack));
  }
  c10::impl::ExcludeDispatchKeyGuard guard(kPagedKey);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&PageInThenRun>());
}

}  // namespace
}  // namespace medfusion
