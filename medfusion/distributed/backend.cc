#include "medfusion/distributed/backend.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <map>

#include "medfusion/distributed/reduce_op.h"

namespace medfusion {
namespace {

std::map<std::string, BackendKind, std::less<>>& Registry() {
  static auto* registry = new std::map<std::string, BackendKind, std::less<>>();
  return *registry;
}

std::string LinkedBackends() {
  return absl::StrJoin(Registry(), ", ",
                       [](std::string* out, const auto& entry) { out->append(entry.first); });
}

}  // namespace

const char* ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown";
}

bool RegisterBackend(BackendKind kind) {
  const std::string name = kind.name;
  return Registry().emplace(name, std::move(kind)).second;
}

absl::StatusOr<BackendKind> FindBackend(std::string_view name) {
  const auto found = Registry().find(name);
  if (found == Registry().end()) {
    return absl::NotFoundError(
        absl::StrCat("backend '", std::string(name),
                     "' is not linked into this program; it has: ", LinkedBackends()));
  }
  return found->second;
}

absl::StatusOr<std::string> ChooseBackend(std::string_view name, int local_world_size) {
  if (name == "auto") {
    const auto nccl = FindBackend("nccl");
    name = nccl.ok() && nccl->available(local_world_size) ? "nccl" : "gloo";
  }
  const auto kind = FindBackend(name);
  if (!kind.ok()) return kind.status();
  if (!kind->available(local_world_size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend '", std::string(name), "' cannot serve ", local_world_size,
                     " local ranks on this machine (it needs a device for each); use 'gloo'"));
  }
  return std::string(name);
}

}  // namespace medfusion
