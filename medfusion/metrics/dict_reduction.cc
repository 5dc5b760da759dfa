#include "medfusion/metrics/dict_reduction.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "medfusion/base/status.h"
#include "medfusion/distributed/rank_list.h"
#include "medfusion/metrics/dict_message.h"
#include "medfusion/metrics/exact_sum.h"

namespace medfusion {
namespace {

absl::Status CheckErrors(const std::vector<RankDict>& ranks) {
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].error.empty()) continue;
    texts.push_back(absl::StrCat("rank ", rank, ": ", ranks[rank].error));
  }
  if (texts.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ReduceDict: ", absl::StrJoin(texts, "; ")));
}

// Which ranks have `key` as what: "" when all agree.
std::string Disagreement(const std::vector<RankDict>& ranks, const std::string& key) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto found = ranks[rank].entries.find(key);
    const bool has = found != ranks[rank].entries.end();
    groups[has ? Signature(found->second) : "missing"].push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1) return "";
  std::vector<std::string> parts;
  for (const auto& [signature, members] : groups) {
    parts.push_back(absl::StrCat(signature, " on ", RankList(members)));
  }
  return absl::StrCat("\"", key, "\" is ", absl::StrJoin(parts, ", "));
}

absl::Status CheckAgreement(const std::vector<RankDict>& ranks) {
  constexpr size_t kNamed = 20;
  std::set<std::string> keys;
  for (const RankDict& rank : ranks) {
    for (const auto& [key, entry] : rank.entries) keys.insert(key);
  }
  std::vector<std::string> texts;
  for (const std::string& key : keys) {
    if (std::string text = Disagreement(ranks, key); !text.empty()) texts.push_back(text);
  }
  if (texts.empty()) return absl::OkStatus();
  const size_t more = texts.size() - std::min(texts.size(), kNamed);
  texts.resize(texts.size() - more);
  return absl::InvalidArgumentError(
      absl::StrCat("ReduceDict: the ranks' metrics differ: ", absl::StrJoin(texts, "; "),
                   more > 0 ? absl::StrCat("; and ", more, " more") : "",
                   ". Every rank must pass the same keys, types and shapes"));
}

double Mean(const std::vector<const DictEntry*>& entries, const std::vector<double>& weights,
            size_t element) {
  ExactSum sum;
  ExactSum total;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if (weights[rank] == 0.0) continue;
    total.Add(weights[rank]);
    if (!entries[rank]->is_integer()) {
      sum.AddProduct(entries[rank]->reals[element], weights[rank]);
      continue;
    }
    const int64_t value = entries[rank]->integers[element];
    const int64_t low = value & 0xFFFFFFFF;
    sum.AddProduct(static_cast<double>(value - low), weights[rank]);
    sum.AddProduct(static_cast<double>(low), weights[rank]);
  }
  return Quotient(sum, total);
}

double Fold(MetricReduction reduction, const std::vector<const DictEntry*>& entries,
            size_t element) {
  ExactSum sum;
  double extreme = entries[0]->reals[element];
  for (const DictEntry* entry : entries) {
    const double value = entry->reals[element];
    sum.Add(value);
    if (std::isnan(extreme)) continue;
    if (std::isnan(value)) extreme = std::numeric_limits<double>::quiet_NaN();
    if (reduction == MetricReduction::kMin && value < extreme) extreme = value;
    if (reduction == MetricReduction::kMax && value > extreme) extreme = value;
  }
  return reduction == MetricReduction::kSum ? sum.Round() : extreme;
}

absl::StatusOr<int64_t> FoldIntegers(MetricReduction reduction,
                                     const std::vector<const DictEntry*>& entries, size_t element) {
  __int128 sum = 0;  // of at most 2^31 ranks' 64 bits
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t greatest = std::numeric_limits<int64_t>::min();
  for (const DictEntry* entry : entries) {
    const int64_t value = entry->integers[element];
    sum += value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  if (reduction == MetricReduction::kMin) return least;
  if (reduction == MetricReduction::kMax) return greatest;
  if (sum != static_cast<int64_t>(sum)) return absl::OutOfRangeError("the sum passes 64 bits");
  return static_cast<int64_t>(sum);
}

template <typename T>
MetricValue Shaped(const std::vector<T>& values, const DictEntry& like, at::ScalarType dtype,
                   const MetricValue& own) {
  if (like.kind != ValueKind::kTensor) return values[0];
  return at::tensor(at::ArrayRef<T>(values), c10::CppTypeToScalarType<T>::value)
      .reshape(like.sizes)
      .to(own.AsTensor().device(), dtype);
}

absl::StatusOr<MetricValue> ReduceEntry(const std::vector<const DictEntry*>& entries,
                                        const std::vector<double>& weights,
                                        const MetricValue& own) {
  const DictEntry& like = *entries[0];
  if (like.is_integer() && like.reduction != MetricReduction::kMean) {
    std::vector<int64_t> values(like.numel());
    for (size_t i = 0; i < values.size(); ++i) {
      MEDFUSION_ASSIGN_OR_RETURN(values[i], FoldIntegers(like.reduction, entries, i));
    }
    const bool sum = like.reduction == MetricReduction::kSum;
    return Shaped(values, like, sum ? at::kLong : like.dtype, own);
  }
  std::vector<double> values(like.numel());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = like.reduction == MetricReduction::kMean ? Mean(entries, weights, i)
                                                         : Fold(like.reduction, entries, i);
  }
  return Shaped(values, like, like.is_integer() ? at::kDouble : like.dtype, own);
}

}  // namespace

absl::StatusOr<MetricMap> ReduceEncodedDicts(const std::vector<std::string>& messages,
                                             const MetricMap& own) {
  std::vector<RankDict> ranks;
  std::vector<double> weights;
  for (const std::string& message : messages) {
    MEDFUSION_ASSIGN_OR_RETURN(RankDict dict, DecodeDict(message));
    weights.push_back(dict.weight);
    ranks.push_back(std::move(dict));
  }
  MEDFUSION_RETURN_IF_ERROR(CheckErrors(ranks));
  MEDFUSION_RETURN_IF_ERROR(CheckAgreement(ranks));
  const bool weightless =
      std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0.0; });
  MetricMap result;
  for (const auto& [key, value] : own) {
    std::vector<const DictEntry*> entries;
    for (const RankDict& rank : ranks) entries.push_back(&rank.entries.at(key));
    if (weightless && entries[0]->reduction == MetricReduction::kMean) {
      return absl::FailedPreconditionError(absl::StrCat(
          "ReduceDict: the mean of \"", key, "\" is undefined: every rank's weight is 0"));
    }
    absl::StatusOr<MetricValue> reduced = ReduceEntry(entries, weights, value);
    if (!reduced.ok()) {
      return Annotate(reduced.status(), absl::StrCat("ReduceDict: \"", key, "\""));
    }
    result[key] = *std::move(reduced);
  }
  return result;
}

}  // namespace medfusion
