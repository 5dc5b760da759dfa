#include "medfusion/launch/error_file.h"

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace medfusion {

void WriteErrorFile(std::string_view message) {
  const char* path = std::getenv(kErrorFileVariable);
  if (path == nullptr || *path == '\0') return;
  const nlohmann::json file = {
      {"message",
       {{"message", std::string(message)},
        {"extraInfo", {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
  // A message may quote bytes of a broken file.
  std::ofstream(path) << file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ReadErrorFile(const std::string& path) {
  std::ifstream stream(path);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("message")) return "";
  const auto& outer = file["message"];
  if (outer.is_string()) return outer.get<std::string>();
  if (!outer.is_object() || !outer.contains("message") || !outer["message"].is_string()) return "";
  return outer["message"].get<std::string>();
}

}  // namespace medfusion
