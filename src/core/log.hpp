// What the library says about what it does, on stderr; CROSSWARP_LOG says how much.
//
// What is thrown is the caller's to tell. Logged is what nobody has asked for yet: a fault while no
// call waits that will throw it, an error that nobody is left to be told of, and what helps to find
// out why.
#pragma once

#include <atomic>
#include <concepts>
#include <string>
#include <string_view>

namespace crosswarp::log {

enum class level { off, error, warn, info, debug, trace };

/// Throws error(invalid_argument) naming the choices.
level parse(std::string_view text);
/// What CROSSWARP_LOG says, `warn` when it says nothing. Throws as parse() does.
level from_environment();

namespace impl {

inline std::atomic<int> most{-1};  // -1: nobody has looked at the environment
int look() noexcept;
void write(level l, int rank, std::string text) noexcept;

inline void append(std::string& to, std::string_view text) {
  to += text;
}
inline void append(std::string& to, std::integral auto number) {
  to += std::to_string(number);
}

}  // namespace impl

/// One load and one comparison.
[[nodiscard]] inline bool on(level l) noexcept {
  const int most = impl::most.load(std::memory_order_relaxed);
  return static_cast<int>(l) <= (most >= 0 ? most : impl::look());
}

/// Writes a line with the time, the level, the rank (-1: not known) and the parts, texts and
/// numbers, put together. Any thread; also after main().
template <class... Parts>
void say(level l, int rank, const Parts&... parts) noexcept {
  if (!on(l)) return;
  try {
    std::string text;
    (impl::append(text, parts), ...);
    impl::write(l, rank, std::move(text));
  } catch (...) {
    // No memory for a line: then there is none.
  }
}

template <class... Parts>
void error(int rank, const Parts&... parts) noexcept {
  say(level::error, rank, parts...);
}
template <class... Parts>
void warn(int rank, const Parts&... parts) noexcept {
  say(level::warn, rank, parts...);
}
template <class... Parts>
void info(int rank, const Parts&... parts) noexcept {
  say(level::info, rank, parts...);
}
template <class... Parts>
void debug(int rank, const Parts&... parts) noexcept {
  say(level::debug, rank, parts...);
}
template <class... Parts>
void trace(int rank, const Parts&... parts) noexcept {
  say(level::trace, rank, parts...);
}

}  // namespace crosswarp::log
