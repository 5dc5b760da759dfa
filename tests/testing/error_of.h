// What a call throws, as text, to be matched.
#ifndef MEDFUSION_TESTS_TESTING_ERROR_OF_H_
#define MEDFUSION_TESTS_TESTING_ERROR_OF_H_

#include <exception>
#include <string>

namespace medfusion::testing {

// The text of the std::exception that `call` throws; "no error" when it returns.
template <typename Call>
std::string ErrorOf(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace medfusion::testing

#endif  // MEDFUSION_TESTS_TESTING_ERROR_OF_H_
