#include "medfusion/data/csv_rows.h"

#include <absl/strings/str_cat.h>
#include <csv.h>

#include <algorithm>

namespace medfusion {
namespace {

constexpr size_t kPiece = size_t{1} << 16;

// Note [Lines of a CSV file]
// libcsv does not count lines. It is fed one line at a time (or a part of one), so that the line in
// which a callback happens is known; a row that is still open when its line ends goes on in the
// next one, inside quotes.
class Walk {
 public:
  Walk(const std::string& source, char delimiter, const CsvLimits& limits,
       const std::function<absl::Status(size_t, std::vector<std::string>)>& on_row)
      : source_(source), limits_(limits), on_row_(on_row) {
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
  }
  ~Walk() { csv_free(&parser_); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  absl::Status Run(std::string_view text) {
    while (!text.empty() && status_.ok()) {
      const std::string_view piece = text.substr(0, PieceSize(text));
      Feed(piece);
      text.remove_prefix(piece.size());
    }
    if (status_.ok() && csv_fini(&parser_, &Walk::OnCell, &Walk::OnRow, this) != 0) {
      Fail("the row that begins here opens a quote that is never closed", row_line_);
    }
    return status_;
  }

 private:
  static size_t PieceSize(std::string_view text) {
    size_t end = text.substr(0, kPiece).find_first_of("\r\n");
    if (end == std::string_view::npos) return std::min(text.size(), kPiece);
    if (text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n') ++end;
    return end + 1;
  }

  void Feed(std::string_view piece) {
    if (piece.find('\0') != std::string_view::npos) {
      return Fail("a NUL byte; this is not a CSV text, or one in UTF-16: save it as UTF-8", line_);
    }
    if (!row_open_) row_line_ = line_;
    cell_ended_ = row_ended_ = false;
    const size_t read =
        csv_parse(&parser_, piece.data(), piece.size(), &Walk::OnCell, &Walk::OnRow, this);
    if (!status_.ok()) return;
    if (read != piece.size()) {
      return Fail("broken quoting; double the quotes inside a quoted cell", line_);
    }
    const bool blank = piece.find_first_not_of(" \t\r\n") == std::string_view::npos;
    row_open_ = !row_ended_ && (row_open_ || !blank);
    open_bytes_ = row_open_ && !cell_ended_ ? open_bytes_ + piece.size() : 0;
    if (open_bytes_ > limits_.max_cell_bytes + kPiece) FailCellSize();
    if (piece.back() == '\n' || piece.back() == '\r') ++line_;
  }

  void Fail(const std::string& what, size_t line) {
    status_ = absl::InvalidArgumentError(absl::StrCat(source_, ":", line, ": ", what));
  }
  void FailCellSize() {
    Fail(absl::StrCat("a cell of more than ", limits_.max_cell_bytes,
                      " bytes; is a quote not closed? (limit: max_cell_bytes)"),
         row_line_);
  }

  static void OnCell(void* bytes, size_t size, void* self_pointer) {
    Walk& self = *static_cast<Walk*>(self_pointer);
    self.cell_ended_ = true;
    if (!self.status_.ok()) return;
    if (size > self.limits_.max_cell_bytes) return self.FailCellSize();
    if (self.cells_.size() == self.limits_.max_columns) {
      return self.Fail(
          absl::StrCat("more than ", self.limits_.max_columns, " columns (limit: max_columns)"),
          self.row_line_);
    }
    self.cells_.emplace_back(size ? static_cast<const char*>(bytes) : "", size);
  }

  static void OnRow(int, void* self_pointer) {
    Walk& self = *static_cast<Walk*>(self_pointer);
    self.row_ended_ = true;
    if (self.status_.ok()) self.status_ = self.on_row_(self.row_line_, std::move(self.cells_));
    self.cells_.clear();
  }

  csv_parser parser_;
  const std::string& source_;
  const CsvLimits& limits_;
  const std::function<absl::Status(size_t, std::vector<std::string>)>& on_row_;
  absl::Status status_;
  std::vector<std::string> cells_;
  size_t line_ = 1;
  size_t row_line_ = 1;
  size_t open_bytes_ = 0;
  bool row_open_ = false;
  bool row_ended_ = false;
  bool cell_ended_ = false;
};

}  // namespace

absl::Status ForEachCsvRow(
    std::string_view text, const std::string& source, char delimiter, const CsvLimits& limits,
    const std::function<absl::Status(size_t line, std::vector<std::string> cells)>& on_row) {
  return Walk(source, delimiter, limits, on_row).Run(text);
}

}  // namespace medfusion
