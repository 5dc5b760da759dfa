#include "medfusion/data/csv.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "medfusion/base/status.h"

namespace medfusion {
namespace {

// A finite number that fills the whole cell. std::from_chars does not ask the locale, strtod does.
std::optional<double> Number(std::string_view cell) {
  // from_chars knows no plus sign.
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [last, error] = std::from_chars(cell.data(), end, value);
  if (error != std::errc() || last != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool Contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string Quoted(const std::string& cell) {
  constexpr size_t kShown = 60;
  return absl::StrCat("'", absl::CHexEscape(cell.substr(0, kShown)),
                      cell.size() > kShown ? "...'" : "'");
}

class Builder {
 public:
  Builder(const std::string& source, const CsvOptions& options)
      : source_(source), options_(options) {}

  absl::Status AddRow(size_t line, std::vector<std::string> cells) {
    if (names_.empty()) return SetHeader(line, std::move(cells));
    if (cells.size() != names_.size()) {
      return Error(line, absl::StrCat(cells.size(), " cells where the header names ", names_.size(),
                                      " columns; quote cells that hold the delimiter"));
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      MEDFUSION_RETURN_IF_ERROR(AddCell(line, i, std::move(cells[i])));
    }
    lines_.push_back(line);
    return absl::OkStatus();
  }

  absl::StatusOr<Table> Finish() {
    if (names_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ": empty; expected a header row and data"));
    }
    if (lines_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ": a header of ", names_.size(), " columns and no data rows"));
    }
    std::vector<Column> kept;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!skip_[i]) kept.push_back(std::move(columns_[i]));
    }
    if (kept.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ": skip_columns names every column; nothing is left"));
    }
    return Table::Create(source_, std::move(kept), std::move(lines_));
  }

 private:
  absl::Status Error(size_t line, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ":", line, ": ", what));
  }

  absl::Status SetHeader(size_t line, std::vector<std::string> names) {
    if (std::all_of(names.begin(), names.end(),
                    [](const std::string& name) { return Number(name).has_value(); })) {
      return Error(line, "the first row holds numbers; add a header row that names the columns");
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) {
        return Error(line, absl::StrCat("column ", i + 1, " of the header has no name"));
      }
    }
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      return Error(line, absl::StrCat("two columns are named ", Quoted(*twice), "; rename one"));
    }
    for (const auto* wanted : {&options_.text_columns, &options_.skip_columns}) {
      for (const std::string& name : *wanted) {
        if (Contains(names, name)) continue;
        return Error(line, absl::StrCat("no column is named ", Quoted(name), "; there are ",
                                        absl::StrJoin(names, ", ")));
      }
    }
    for (const std::string& name : names) {
      columns_.push_back({name, std::vector<double>()});
      if (Contains(options_.text_columns, name)) columns_.back().cells = std::vector<std::string>();
      skip_.push_back(Contains(options_.skip_columns, name));
    }
    names_ = std::move(names);
    return absl::OkStatus();
  }

  absl::Status AddCell(size_t line, size_t column, std::string cell) {
    if (skip_[column]) return absl::OkStatus();
    const bool missing = Contains(options_.missing_values, cell);
    if (auto* texts = std::get_if<std::vector<std::string>>(&columns_[column].cells)) {
      texts->push_back(missing ? std::string() : std::move(cell));
      return absl::OkStatus();
    }
    const std::optional<double> number =
        missing ? std::numeric_limits<double>::quiet_NaN() : Number(cell);
    if (!number) {
      return Error(line, absl::StrCat("column '", names_[column], "' holds ", Quoted(cell),
                                      ", which is not a finite number; correct the cell, leave it "
                                      "empty if the value is missing, or list the column in "
                                      "text_columns or skip_columns"));
    }
    std::get<std::vector<double>>(columns_[column].cells).push_back(*number);
    return absl::OkStatus();
  }

  const std::string& source_;
  const CsvOptions& options_;
  std::vector<std::string> names_;
  std::vector<bool> skip_;
  std::vector<Column> columns_;
  std::vector<size_t> lines_;
};

absl::Status FileError(const std::string& path) {
  const int code = errno;
  const std::string message = absl::StrCat(path, ": cannot be read: ", std::strerror(code));
  if (code == ENOENT || code == ENOTDIR) return absl::NotFoundError(message);
  if (code == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return FileError(path);
  std::string text;
  char piece[1 << 16];
  while (const size_t size = std::fread(piece, 1, sizeof(piece), file.get())) {
    if (text.size() + size > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": more than ", max_bytes, " bytes (limit: max_file_bytes)"));
    }
    text.append(piece, size);
  }
  if (std::ferror(file.get())) return FileError(path);
  return text;
}

}  // namespace

absl::StatusOr<Table> ParseCsv(std::string_view text, const std::string& source,
                               const CsvOptions& options) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  Builder builder(source, options);
  MEDFUSION_RETURN_IF_ERROR(ForEachCsvRow(text, source, options.delimiter, options.limits,
                                          [&](size_t line, std::vector<std::string> cells) {
                                            return builder.AddRow(line, std::move(cells));
                                          }));
  return builder.Finish();
}

absl::StatusOr<Table> ReadCsv(const std::string& path, const CsvOptions& options) {
  MEDFUSION_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, options.limits.max_file_bytes));
  return ParseCsv(text, path, options);
}

}  // namespace medfusion
