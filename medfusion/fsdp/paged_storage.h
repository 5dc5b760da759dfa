// The seam between LibTorch's dispatcher and our paging: parameters that call before they are used.
//
// Note [Parameters that call before they are used]
// LibTorch's modules have no hooks, so nothing outside of a module can act when it runs. Its
// parameter tensors can: each carries one more dispatch key, which LibTorch keeps for tests and no
// backend uses. A boxed fallback on that key (paging_dispatch.cc) sees every operator, forward or
// backward, that has such a tensor or a view of it among its arguments. Which unit it belongs to is
// written in its storage, which is of a class of our own: no table, no lock, nothing that ranks in
// one process would share.
#ifndef MEDFUSION_FSDP_PAGED_STORAGE_H_
#define MEDFUSION_FSDP_PAGED_STORAGE_H_

#include <c10/core/DispatchKey.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace medfusion {

class FlatParameter;

constexpr c10::DispatchKey kPagedKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// One tensor among an operator's arguments that lives in a paged storage.
struct PageAccess {
  FlatParameter* flat = nullptr;
  int64_t storage_offset = 0;  // in elements; tells which parameter it is
  bool writes = false;
};

// Who makes flat parameters readable. Called on the thread that runs the operator; may throw, and
// then the operator does not run.
class PageHandler {
 public:
  virtual ~PageHandler() = default;
  virtual void BeforeOperator(std::string_view name, std::span<const PageAccess> accesses) = 0;
};

// Memory that is there only while its unit is paged in. Keeps its size while it is empty, so that
// views can be taken at any time; reading it then, around the dispatcher (data_ptr), throws
// LibTorch's "data is not allocated yet".
class PagedStorage : public c10::StorageImpl {
 public:
  PagedStorage(int64_t bytes, c10::Device device, PageHandler* handler, FlatParameter* flat)
      : StorageImpl(use_byte_size_t(), bytes, c10::DataPtr(nullptr, device), nullptr, false),
        handler(handler),
        flat(flat) {}

  // Both null when the flat parameter is gone and a tensor still holds the storage.
  PageHandler* handler;
  FlatParameter* flat;
};

}  // namespace medfusion

#endif  // MEDFUSION_FSDP_PAGED_STORAGE_H_
