// A table of named columns, as read from a file: what datasets are built from.
#ifndef MEDFUSION_DATA_TABLE_H_
#define MEDFUSION_DATA_TABLE_H_

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace medfusion {

// Cells of one kind. A missing number is NaN, a missing text is empty.
struct Column {
  std::string name;
  std::variant<std::vector<double>, std::vector<std::string>> cells;

  bool numeric() const { return cells.index() == 0; }
  size_t size() const;
};

// Immutable after Create, so that threads may read it at once. Not collective.
class Table {
 public:
  // `source` is what errors call the table, for example the file's path. `lines` holds the line of
  // the source on which each row begins, or is empty. InvalidArgument unless there is a column, all
  // have the same length (that of `lines`, if given) and names are unique and not empty.
  static absl::StatusOr<Table> Create(std::string source, std::vector<Column> columns,
                                      std::vector<size_t> lines = {});

  const std::string& source() const { return source_; }
  size_t rows() const { return columns_.front().size(); }
  const std::vector<Column>& columns() const { return columns_; }

  // NotFound, with the names that exist, when there is no such column.
  absl::StatusOr<const Column*> Find(std::string_view name) const;

  // The cells of a column, valid as long as the table. NotFound as above; InvalidArgument when the
  // column is of the other kind.
  absl::StatusOr<std::span<const double>> Numbers(std::string_view name) const;
  absl::StatusOr<std::span<const std::string>> Texts(std::string_view name) const;

  // Where a row comes from, for error messages: "data.csv:17", or "data.csv, row 15" (from 0).
  std::string Place(size_t row) const;

 private:
  Table(std::string source, std::vector<Column> columns, std::vector<size_t> lines);

  std::string source_;
  std::vector<Column> columns_;
  std::vector<size_t> lines_;
};

}  // namespace medfusion

#endif  // MEDFUSION_DATA_TABLE_H_
