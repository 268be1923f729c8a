#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/terminal_text.h"

namespace weft {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("weft: %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) {
  switch (level) {
    case LogLevel::kQuiet:
      return logger().set_level(spdlog::level::off);
    case LogLevel::kWarning:
      return logger().set_level(spdlog::level::warn);
    case LogLevel::kInfo:
      return logger().set_level(spdlog::level::info);
    case LogLevel::kDebug:
      return logger().set_level(spdlog::level::debug);
  }
}

bool logs_info() { return logger().should_log(spdlog::level::info); }

void log_warning(std::string_view message) { logger().warn("{}", one_line(message)); }
void log_info(std::string_view message) { logger().info("{}", one_line(message)); }
}  // namespace weft
