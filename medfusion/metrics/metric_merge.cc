#include "medfusion/metrics/metric_merge.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <map>

#include "medfusion/base/status.h"
#include "medfusion/distributed/rank_list.h"
#include "medfusion/metrics/wire.h"

namespace medfusion {
namespace {

struct RankMetrics {
  std::string descriptions;
  std::vector<absl::Status> statuses;
  std::vector<MetricState> states;
};

bool FitsInFloat(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    return static_cast<double>(static_cast<float>(value)) == value;
  });
}

void PutState(ByteWriter& writer, const MetricState& state) {
  writer.PutList(std::span<const int64_t>(state.integers));
  const bool narrow = FitsInFloat(state.reals);
  writer.Put<uint8_t>(narrow);
  if (narrow) {
    const std::vector<float> reals(state.reals.begin(), state.reals.end());
    writer.PutList(std::span<const float>(reals));
  } else {
    writer.PutList(std::span<const double>(state.reals));
  }
}

MetricState GetState(ByteReader& reader) {
  MetricState state;
  state.integers = reader.GetList<int64_t>();
  if (reader.Get<uint8_t>() != 0) {
    const std::vector<float> reals = reader.GetList<float>();
    state.reals.assign(reals.begin(), reals.end());
  } else {
    state.reals = reader.GetList<double>();
  }
  return state;
}

absl::Status Decode(const std::string& message, size_t num_metrics, RankMetrics& result) {
  ByteReader reader(message);
  result.descriptions = reader.GetText();
  const auto count = reader.Get<int64_t>();
  // A rank with other metrics is told apart by its descriptions; its states mean nothing here.
  if (!reader.ok() || count != static_cast<int64_t>(num_metrics)) return absl::OkStatus();
  for (size_t i = 0; i < num_metrics; ++i) {
    const auto code = static_cast<absl::StatusCode>(reader.Get<int32_t>());
    const std::string text = reader.GetText();
    result.statuses.emplace_back(code, text);
    result.states.push_back(GetState(reader));
  }
  if (!reader.ok()) return absl::InternalError("a metric's state arrived incomplete");
  return absl::OkStatus();
}

absl::Status CheckSameMetrics(const std::vector<RankMetrics>& ranks) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    groups[ranks[rank].descriptions].push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1) return absl::OkStatus();
  std::string text = "the ranks merge different metrics:";
  for (const auto& [descriptions, members] : groups) {
    absl::StrAppend(&text, text.back() == ':' ? " " : "; ", RankList(members), " ",
                    members.size() == 1 ? "has " : "have ",
                    descriptions.empty() ? "none" : descriptions);
  }
  return absl::InvalidArgumentError(text);
}

absl::Status CheckNoneRefused(const std::vector<RankMetrics>& ranks) {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const absl::Status& status : ranks[rank].statuses) {
      if (status.ok()) continue;
      if (code == absl::StatusCode::kOk) code = status.code();
      texts.push_back(absl::StrCat("rank ", rank, ": ", status.message()));
    }
  }
  return absl::Status(code, absl::StrJoin(texts, "; "));
}

}  // namespace

std::string EncodeMetrics(std::span<const Metric* const> locals) {
  ByteWriter writer;
  std::vector<std::string> descriptions;
  for (const Metric* metric : locals) descriptions.push_back(metric->Description());
  writer.PutText(absl::StrJoin(descriptions, ", "));
  writer.Put<int64_t>(static_cast<int64_t>(locals.size()));
  for (const Metric* metric : locals) {
    const absl::Status status = metric->status();
    writer.Put<int32_t>(static_cast<int32_t>(status.code()));
    writer.PutText(std::string(status.message()));
    PutState(writer, metric->State());
  }
  return writer.bytes();
}

absl::Status MergeEncodedMetrics(const std::vector<std::string>& messages,
                                 std::span<Metric* const> merged) {
  std::vector<RankMetrics> ranks(messages.size());
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    MEDFUSION_RETURN_IF_ERROR(Decode(messages[rank], merged.size(), ranks[rank]));
  }
  MEDFUSION_RETURN_IF_ERROR(CheckSameMetrics(ranks));
  MEDFUSION_RETURN_IF_ERROR(CheckNoneRefused(ranks));
  for (const RankMetrics& rank : ranks) {
    for (size_t i = 0; i < merged.size(); ++i) {
      MEDFUSION_RETURN_IF_ERROR(merged[i]->Merge(rank.states[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace medfusion
