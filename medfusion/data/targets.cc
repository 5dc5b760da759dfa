#include "medfusion/data/targets.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

// More classes than this in a column of numbers means that it is no column of classes.
constexpr double kMaxClasses = 1 << 16;

absl::Status RowError(const Table& table, size_t row, const std::string& target,
                      const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(table.Place(row), ": target '", target, "' ", what));
}

absl::StatusOr<std::vector<std::string>> BinaryNames(const Table& table, const std::string& target,
                                                     std::span<const std::string> texts,
                                                     const std::string& positive_class) {
  std::set<std::string> values(texts.begin(), texts.end());
  values.erase("");
  const std::string all = absl::StrJoin(values, ", ");
  if (values.erase(positive_class) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(table.source(), ": positive_class '",
                                                   positive_class, "' does not occur in target '",
                                                   target, "', which holds ", all));
  }
  if (values.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.source(), ": target '", target, "' holds ", values.size() + 1,
                     " values (", all, "); positive_class is for two, name more in class_names"));
  }
  return std::vector<std::string>{*values.begin(), positive_class};
}

absl::StatusOr<Targets> FromTexts(const Table& table, const std::string& target,
                                  std::span<const std::string> texts,
                                  std::vector<std::string> names) {
  Targets targets;
  for (size_t row = 0; row < texts.size(); ++row) {
    if (texts[row].empty()) {
      return RowError(table, row, target, "is missing; give the class or remove the row");
    }
    const auto found = std::find(names.begin(), names.end(), texts[row]);
    if (found == names.end()) {
      return RowError(table, row, target,
                      absl::StrCat("holds '", texts[row], "', which is none of the classes ",
                                   absl::StrJoin(names, ", ")));
    }
    targets.labels.push_back(found - names.begin());
  }
  targets.class_names = std::move(names);
  return targets;
}

absl::StatusOr<Targets> FromNumbers(const Table& table, const std::string& target,
                                    std::span<const double> numbers,
                                    std::vector<std::string> names) {
  Targets targets;
  const double bound = names.empty() ? kMaxClasses : static_cast<double>(names.size());
  for (size_t row = 0; row < numbers.size(); ++row) {
    const double value = numbers[row];
    if (std::isnan(value)) {
      return RowError(table, row, target, "is missing; give the class or remove the row");
    }
    if (value < 0 || value >= bound || value != std::floor(value)) {
      return RowError(
          table, row, target,
          absl::StrCat("holds ", value, ", which is no class; expected an integer 0..", bound - 1));
    }
    targets.labels.push_back(static_cast<int64_t>(value));
  }
  const int64_t last =
      targets.labels.empty() ? -1 : *std::max_element(targets.labels.begin(), targets.labels.end());
  for (int64_t i = 0; names.size() <= static_cast<size_t>(last); ++i) {
    names.push_back(absl::StrCat(i));
  }
  targets.class_names = std::move(names);
  return targets;
}

absl::Status CheckClasses(const Table& table, const std::string& target, const Targets& targets) {
  if (targets.class_names.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        table.source(), ": target '", target, "' has fewer than two classes; nothing to learn"));
  }
  std::vector<size_t> counts(targets.class_names.size());
  for (const int64_t label : targets.labels) ++counts[label];
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(table.source(), ": class ", i, " ('",
                                                   targets.class_names[i], "') of target '", target,
                                                   "' has no samples; number classes from 0, "
                                                   "without gaps"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Targets> Read(const Table& table, const Column& column,
                             const std::string& positive_class,
                             const std::vector<std::string>& class_names) {
  if (column.numeric()) {
    if (!positive_class.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          table.source(), ": target '", column.name,
          "' was read as numbers; read it as text (text_columns) or leave positive_class empty"));
    }
    return FromNumbers(table, column.name, std::get<std::vector<double>>(column.cells),
                       class_names);
  }
  const auto& texts = std::get<std::vector<std::string>>(column.cells);
  if (!positive_class.empty()) {
    MEDFUSION_ASSIGN_OR_RETURN(std::vector<std::string> names,
                               BinaryNames(table, column.name, texts, positive_class));
    return FromTexts(table, column.name, texts, std::move(names));
  }
  if (!class_names.empty()) return FromTexts(table, column.name, texts, class_names);
  return absl::InvalidArgumentError(
      absl::StrCat(table.source(), ": target '", column.name, "' holds text (",
                   absl::StrJoin(std::set<std::string>(texts.begin(), texts.end()), ", "),
                   "); say which value is the positive_class, or list class_names"));
}

}  // namespace

absl::StatusOr<Targets> ReadTargets(const Table& table, const std::string& target,
                                    const std::string& positive_class,
                                    const std::vector<std::string>& class_names) {
  MEDFUSION_ASSIGN_OR_RETURN(const Column* const column, table.Find(target));
  if (!positive_class.empty() && !class_names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(table.source(), ": both positive_class ('",
                                                   positive_class,
                                                   "') and class_names are given; give one"));
  }
  MEDFUSION_ASSIGN_OR_RETURN(Targets targets, Read(table, *column, positive_class, class_names));
  MEDFUSION_RETURN_IF_ERROR(CheckClasses(table, target, targets));
  return targets;
}

}  // namespace medfusion
