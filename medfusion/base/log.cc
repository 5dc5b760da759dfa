#include "medfusion/base/log.h"

#include <glog/logging.h>

namespace medfusion {

void LogInfo(std::string_view text, const char* file, int line) {
  google::LogMessage(file, line, google::GLOG_INFO).stream() << text;
}

void LogWarning(std::string_view text, const char* file, int line) {
  google::LogMessage(file, line, google::GLOG_WARNING).stream() << text;
}

void LogError(std::string_view text, const char* file, int line) {
  google::LogMessage(file, line, google::GLOG_ERROR).stream() << text;
}

}  // namespace medfusion
