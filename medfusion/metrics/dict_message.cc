#include "medfusion/metrics/dict_message.h"

#include <ATen/core/Tensor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cmath>
#include <span>

#include "medfusion/base/status.h"
#include "medfusion/metrics/wire.h"

namespace medfusion {
namespace {

const char* ReductionName(MetricReduction reduction) {
  switch (reduction) {
    case MetricReduction::kMean:
      return "mean";
    case MetricReduction::kSum:
      return "sum";
    case MetricReduction::kMin:
      return "min";
    case MetricReduction::kMax:
      return "max";
  }
  return "unknown";
}

template <typename T>
std::vector<T> Elements(const at::Tensor& tensor, at::ScalarType dtype) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, dtype).contiguous();
  const T* data = flat.const_data_ptr<T>();
  return std::vector<T>(data, data + flat.numel());
}

absl::StatusOr<DictEntry> MakeEntry(const std::string& key, const MetricValue& value,
                                    MetricReduction reduction) {
  DictEntry entry;
  entry.reduction = reduction;
  if (value.is_double()) {
    entry.reals = {value.AsDouble()};
    return entry;
  }
  if (value.is_int64()) {
    entry.kind = ValueKind::kInt64;
    entry.dtype = at::kLong;
    entry.integers = {value.AsInt64()};
    return entry;
  }
  entry.kind = ValueKind::kTensor;
  const at::Tensor tensor = value.AsTensor();
  if (!tensor.defined()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is an undefined tensor"));
  }
  entry.dtype = tensor.scalar_type();
  entry.sizes = tensor.sizes().vec();
  if (entry.is_integer()) {
    entry.integers = Elements<int64_t>(tensor, at::kLong);
  } else if (at::isFloatingType(entry.dtype)) {
    entry.reals = Elements<double>(tensor, at::kDouble);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", key, "\" is a tensor of ", c10::toString(entry.dtype), "; expected real numbers"));
  }
  return entry;
}

absl::StatusOr<std::map<std::string, DictEntry>> MakeEntries(const MetricMap& metrics,
                                                             const ReduceDictOptions& options) {
  if (!std::isfinite(options.weight) || options.weight < 0.0) {
    return absl::InvalidArgumentError(absl::StrCat("ReduceDictOptions::weight is ", options.weight,
                                                   "; expected a finite number of at least 0"));
  }
  for (const auto& [key, reduction] : options.reductions) {
    if (metrics.count(key) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("ReduceDictOptions::reductions names \"", key, "\", which is no metric"));
    }
  }
  std::map<std::string, DictEntry> entries;
  for (const auto& [key, value] : metrics) {
    const auto own = options.reductions.find(key);
    const MetricReduction reduction =
        own == options.reductions.end() ? options.reduction : own->second;
    MEDFUSION_ASSIGN_OR_RETURN(entries[key], MakeEntry(key, value, reduction));
  }
  return entries;
}

void PutEntry(ByteWriter& writer, const std::string& key, const DictEntry& entry) {
  writer.PutText(key);
  writer.Put(entry.reduction);
  writer.Put(entry.kind);
  writer.Put(entry.dtype);
  writer.PutList(std::span<const int64_t>(entry.sizes));
  if (entry.is_integer()) {
    writer.PutList(std::span<const int64_t>(entry.integers));
  } else {
    writer.PutList(std::span<const double>(entry.reals));
  }
}

}  // namespace

std::string Signature(const DictEntry& entry) {
  std::string type = "double";
  if (entry.kind == ValueKind::kInt64) type = "int64";
  if (entry.kind == ValueKind::kTensor) {
    type = absl::StrCat(c10::toString(entry.dtype), "[", absl::StrJoin(entry.sizes, ", "), "]");
  }
  return absl::StrCat(ReductionName(entry.reduction), " of ", type);
}

std::string EncodeDict(const MetricMap& metrics, const ReduceDictOptions& options) {
  absl::StatusOr<std::map<std::string, DictEntry>> entries = absl::UnknownError("");
  const absl::Status made = CatchAsStatus([&] { entries = MakeEntries(metrics, options); });
  if (!made.ok()) entries = made;  // LibTorch's own, such as for a sparse tensor
  ByteWriter writer;
  writer.PutText(entries.ok() ? "" : std::string(entries.status().message()));
  writer.Put<double>(options.weight);
  writer.Put<int64_t>(entries.ok() ? static_cast<int64_t>(entries->size()) : 0);
  if (entries.ok()) {
    for (const auto& [key, entry] : *entries) PutEntry(writer, key, entry);
  }
  return writer.bytes();
}

absl::StatusOr<RankDict> DecodeDict(const std::string& message) {
  ByteReader reader(message);
  RankDict dict;
  dict.error = reader.GetText();
  dict.weight = reader.Get<double>();
  const auto count = reader.Get<int64_t>();
  for (int64_t i = 0; i < count && reader.ok(); ++i) {
    const std::string key = reader.GetText();
    DictEntry& entry = dict.entries[key];
    entry.reduction = reader.Get<MetricReduction>();
    entry.kind = reader.Get<ValueKind>();
    entry.dtype = reader.Get<at::ScalarType>();
    entry.sizes = reader.GetList<int64_t>();
    if (entry.is_integer()) {
      entry.integers = reader.GetList<int64_t>();
    } else {
      entry.reals = reader.GetList<double>();
    }
  }
  if (!reader.ok()) return absl::InternalError("ReduceDict: a rank's message arrived incomplete");
  return dict;
}

}  // namespace medfusion
