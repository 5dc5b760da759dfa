#include "medfusion/data/table.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <set>

namespace medfusion {

size_t Column::size() const {
  return std::visit([](const auto& values) { return values.size(); }, cells);
}

Table::Table(std::string source, std::vector<Column> columns, std::vector<size_t> lines)
    : source_(std::move(source)), columns_(std::move(columns)), lines_(std::move(lines)) {}

absl::StatusOr<Table> Table::Create(std::string source, std::vector<Column> columns,
                                    std::vector<size_t> lines) {
  if (columns.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": no columns"));
  const size_t rows = columns.front().size();
  std::set<std::string_view> names;
  for (const Column& column : columns) {
    if (column.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": a column has no name"));
    }
    if (!names.insert(column.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": two columns are named '", column.name, "'; rename one"));
    }
    if (column.size() != rows) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": column '", column.name, "' has ",
                                                     column.size(), " cells, '",
                                                     columns.front().name, "' has ", rows));
    }
  }
  if (!lines.empty() && lines.size() != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", lines.size(), " line numbers for ", rows, " rows"));
  }
  return Table(std::move(source), std::move(columns), std::move(lines));
}

absl::StatusOr<const Column*> Table::Find(std::string_view name) const {
  for (const Column& column : columns_) {
    if (column.name == name) return &column;
  }
  const std::string known = absl::StrJoin(
      columns_, ", ", [](std::string* out, const Column& column) { out->append(column.name); });
  return absl::NotFoundError(
      absl::StrCat(source_, ": no column is named '", std::string(name), "'; there are ", known));
}

absl::StatusOr<std::span<const double>> Table::Numbers(std::string_view name) const {
  const absl::StatusOr<const Column*> column = Find(name);
  if (!column.ok()) return column.status();
  const auto* values = std::get_if<std::vector<double>>(&(*column)->cells);
  if (values) return std::span<const double>(*values);
  return absl::InvalidArgumentError(
      absl::StrCat(source_, ": column '", std::string(name), "' was read as text, not as numbers"));
}

absl::StatusOr<std::span<const std::string>> Table::Texts(std::string_view name) const {
  const absl::StatusOr<const Column*> column = Find(name);
  if (!column.ok()) return column.status();
  const auto* values = std::get_if<std::vector<std::string>>(&(*column)->cells);
  if (values) return std::span<const std::string>(*values);
  return absl::InvalidArgumentError(
      absl::StrCat(source_, ": column '", std::string(name), "' was read as numbers, not as text"));
}

std::string Table::Place(size_t row) const {
  if (row < lines_.size()) return absl::StrCat(source_, ":", lines_[row]);
  return absl::StrCat(source_, ", row ", row);
}

}  // namespace medfusion
