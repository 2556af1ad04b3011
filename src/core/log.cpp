#include "log.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <memory>
#if CROSSWARP_HAVE_SPDLOG
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#endif

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::log {
namespace {

constexpr const char* names[] = {"off", "error", "warn", "info", "debug", "trace"};

// ---- the writer: puts the time in front of a line and has it written in one piece

#if CROSSWARP_HAVE_SPDLOG

void put(level l, const std::string& line) {
  // Never destroyed: what ends after main() may have something to say. Not one of spdlog's
  // registered loggers: those are the program's.
  static spdlog::logger& logger = *[] {
    auto* made = new spdlog::logger("crosswarp", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
    made->set_level(spdlog::level::trace);  // on() has chosen
    return made;
  }();
  constexpr spdlog::level::level_enum theirs[] = {spdlog::level::off,   spdlog::level::err,
                                                  spdlog::level::warn,  spdlog::level::info,
                                                  spdlog::level::debug, spdlog::level::trace};
  logger.log(theirs[static_cast<int>(l)], spdlog::string_view_t(line.data(), line.size()));
}

#else

void put(level /*l*/, const std::string& line) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm local{};
  localtime_r(&seconds, &local);
  char time[64];
  const std::size_t n = std::strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(time + n, sizeof(time) - n, ".%03d ", static_cast<int>(since.count() % 1000));
  const std::string whole = time + line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, whole.data(), whole.size());
}

#endif

}  // namespace

level parse(std::string_view text) {
  const auto it = std::find(std::begin(names), std::end(names), text);
  if (it == std::end(names)) {
    throw crosswarp::error(
        errc::invalid_argument, "CROSSWARP_LOG",
        "'" + std::string(text) + "' is none of off, error, warn, info, debug, trace");
  }
  return static_cast<level>(it - std::begin(names));
}

level from_environment() {
  const auto text = options::read("CROSSWARP_LOG");
  return text ? parse(*text) : level::warn;
}

namespace impl {

int look() noexcept {
  level found = level::warn;
  try {
    found = from_environment();
  } catch (const std::exception&) {
    // Whoever makes a world from the environment is told.
  }
  most.store(static_cast<int>(found), std::memory_order_relaxed);
  return static_cast<int>(found);
}

void write(level l, int rank, std::string text) noexcept {
  try {
    // Others' words may be in it; a line stays a line.
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
    std::string line = "crosswarp ";
    line += names[static_cast<int>(l)];
    if (rank >= 0) line += " rank " + std::to_string(rank);
    put(l, line + ": " + text);
  } catch (...) {
    // Nobody can be told that nobody can be told.
  }
}

}  // namespace impl

}  // namespace crosswarp::log
