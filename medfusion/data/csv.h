// CSV files as tables. A file that is not what it should be is an error that names the file, the
// line, the column and the value, never a guess.
#ifndef MEDFUSION_DATA_CSV_H_
#define MEDFUSION_DATA_CSV_H_

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "medfusion/data/csv_rows.h"
#include "medfusion/data/table.h"

namespace medfusion {

struct CsvOptions {
  // Columns kept as text. Every other column must hold finite numbers in C notation ("-1.5e3").
  std::vector<std::string> text_columns;
  // Columns left out, whatever they hold, such as patient numbers.
  std::vector<std::string> skip_columns;
  // Cells that mean "no value was recorded": NaN in a column of numbers, empty in one of text.
  std::vector<std::string> missing_values = {"", "NA", "N/A", "NaN", "nan", "null", "?"};
  char delimiter = ',';
  CsvLimits limits;
};

// Reads a file whose first row names the columns; see ForEachCsvRow for the syntax. A byte order
// mark is skipped. Errors: NotFound, PermissionDenied or Unavailable when it cannot be read;
// InvalidArgument for: an empty file, a header alone, a header of numbers, names that are empty or
// occur twice, a row with more or fewer cells than the header, a cell that is no finite number,
// broken quoting, NUL bytes, a limit exceeded, a column of the options that is not in the file.
// Not collective; thread safe.
absl::StatusOr<Table> ReadCsv(const std::string& path, const CsvOptions& options = {});

// The same for a text in memory; errors call it `source`.
absl::StatusOr<Table> ParseCsv(std::string_view text, const std::string& source,
                               const CsvOptions& options = {});

}  // namespace medfusion

#endif  // MEDFUSION_DATA_CSV_H_
