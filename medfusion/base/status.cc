#include "medfusion/base/status.h"

#include <absl/strings/str_cat.h>

namespace medfusion {
namespace {

// c10::Error ends its text with a C++ stack trace, which says nothing to a user.
std::string WithoutBacktrace(std::string_view text) {
  for (std::string_view mark : {"\nException raised from ", "Exception raised from "}) {
    if (size_t at = text.find(mark); at != std::string_view::npos) text = text.substr(0, at);
  }
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

StatusError::StatusError(absl::Status status)
    : status_(std::move(status)), text_(std::string(status_.message())) {}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

absl::Status StatusFromCurrentException() {
  try {
    throw;
  } catch (const StatusError& error) {
    return error.status();
  } catch (const std::exception& error) {
    return absl::InternalError(WithoutBacktrace(error.what()));
  } catch (...) {
    return absl::InternalError("an exception that is not a std::exception was thrown");
  }
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(context), ": ", status.message()));
}

int ExitCode(const absl::Status& status) { return static_cast<int>(status.code()); }

}  // namespace medfusion
