// The one place where exceptions and absl::Status meet.
//
// LibTorch throws; what depends on the outside world (environment, network, files, configuration)
// returns a Status. Exceptions pass freely inside forward, backward and collectives and become a
// Status once, at the edge of a unit that promises one.
#ifndef MEDFUSION_BASE_STATUS_H_
#define MEDFUSION_BASE_STATUS_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace medfusion {

// The exception's text without LibTorch's stack trace, as a Status: absl::InternalError, or the
// Status that ThrowIfError threw. Call inside a catch block.
absl::Status StatusFromCurrentException();

// A Status as an exception, for code below an interface that throws.
class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status);
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  absl::Status status_;
  std::string text_;
};

// Throws StatusError unless `status` is OK.
void ThrowIfError(const absl::Status& status);

// Runs `function` and returns OK, or its exception as a Status. A `function` that returns a Status
// has it passed on.
template <typename Function>
absl::Status CatchAsStatus(Function&& function) {
  try {
    if constexpr (std::is_same_v<std::invoke_result_t<Function>, absl::Status>) {
      return std::forward<Function>(function)();
    } else {
      std::forward<Function>(function)();
      return absl::OkStatus();
    }
  } catch (...) {
    return StatusFromCurrentException();
  }
}

// The same Status with `context` and ": " before its message. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// The number a process exits with when it ends on this Status: 0 when OK, else 1..16, the Status's
// code.
int ExitCode(const absl::Status& status);

}  // namespace medfusion

#define MEDFUSION_STATUS_CONCAT_INNER(a, b) a##b
#define MEDFUSION_STATUS_CONCAT(a, b) MEDFUSION_STATUS_CONCAT_INNER(a, b)

// Returns from the calling function when `expression`, an absl::Status, is not OK.
#define MEDFUSION_RETURN_IF_ERROR(expression)              \
  do {                                                     \
    ::absl::Status medfusion_status_ = (expression);       \
    if (!medfusion_status_.ok()) return medfusion_status_; \
  } while (false)

// Assigns the value of `expression`, an absl::StatusOr, to `target` (which may declare a variable),
// or returns its Status.
#define MEDFUSION_ASSIGN_OR_RETURN(target, expression)                                       \
  MEDFUSION_ASSIGN_OR_RETURN_INNER(MEDFUSION_STATUS_CONCAT(medfusion_or_, __LINE__), target, \
                                   expression)
#define MEDFUSION_ASSIGN_OR_RETURN_INNER(holder, target, expression) \
  auto holder = (expression);                                        \
  if (!holder.ok()) return holder.status();                          \
  target = *std::move(holder)

#endif  // MEDFUSION_BASE_STATUS_H_
