// The rows of a CSV text, by libcsv, with the line on which each begins and limits on its sizes.
#ifndef MEDFUSION_DATA_CSV_ROWS_H_
#define MEDFUSION_DATA_CSV_ROWS_H_

#include <absl/status/status.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace medfusion {

struct CsvLimits {
  size_t max_file_bytes = size_t{1} << 30;
  size_t max_cell_bytes = size_t{1} << 16;
  size_t max_columns = size_t{1} << 16;
};

// Calls `on_row` with the number of the line (from 1) on which a row begins and with its cells; an
// error it returns ends the walk and is returned. Lines end with LF, CRLF or CR; blank ones are no
// rows; spaces around an unquoted cell are dropped; quoting follows RFC 4180 strictly.
// InvalidArgument, naming `source` and the line: NUL bytes, broken quoting, a limit exceeded.
absl::Status ForEachCsvRow(
    std::string_view text, const std::string& source, char delimiter, const CsvLimits& limits,
    const std::function<absl::Status(size_t line, std::vector<std::string> cells)>& on_row);

}  // namespace medfusion

#endif  // MEDFUSION_DATA_CSV_ROWS_H_
