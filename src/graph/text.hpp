// Text files line by line, and errors that say where.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "crosswarp/error.hpp"

namespace crosswarp::graph {

/// What a file says, for people: cut, and what is no plain letter as its number. A file may say
/// anything, also what a terminal would obey.
inline std::string shown(std::string_view text) {
  constexpr std::size_t most = 40;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string safe;
  for (const char c : text.substr(0, most)) {
    if (c >= ' ' && c <= '~') {
      safe.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    safe += "\\x";
    safe += {digits[byte / 16U], digits[byte % 16U]};
  }
  return text.size() > most ? safe + "..." : safe;
}

/// Lines of a text, and the words of the current one.
class text_lines {
 public:
  text_lines(std::string_view text, std::string name) : rest_(text), name_(std::move(name)) {}

  /// Goes to the next line; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    return true;
  }
  /// Goes to the next line that has words and is no comment.
  bool next_with_words(std::string_view comments) {
    while (next()) {
      if (!is_empty() && comments.find(line_.front()) == std::string_view::npos) return true;
    }
    return false;
  }

  /// The next word of the line; empty at its end.
  std::string_view word() {
    skip_blanks();
    std::size_t n = 0;
    while (n < line_.size() && !is_blank(line_[n])) ++n;
    const std::string_view w = line_.substr(0, n);
    line_.remove_prefix(n);
    return w;
  }
  /// No word is left.
  bool is_empty() {
    skip_blanks();
    return line_.empty();
  }
  [[nodiscard]] std::size_t bytes_left() const noexcept { return rest_.size() + line_.size(); }
  [[nodiscard]] std::string_view line() const noexcept { return line_; }
  /// The current line's number, from 1.
  [[nodiscard]] std::uint64_t line_number() const noexcept { return number_; }

  /// The next word as a whole number from `least` to `most`; `what` it is.
  std::uint64_t number(const char* what, std::uint64_t least, std::uint64_t most) {
    const std::string_view w = word();
    if (w.empty()) throw wrong(std::string(what) + " is missing");
    std::uint64_t value = 0;
    const auto [stop, bad] = std::from_chars(w.data(), w.data() + w.size(), value);
    if (bad == std::errc::result_out_of_range) throw wrong(range(what, w, least, most));
    // Real numbers that are whole.
    std::string_view fraction(stop, static_cast<std::size_t>(w.data() + w.size() - stop));
    if (bad == std::errc{} && fraction.starts_with('.')) {
      fraction.remove_prefix(std::min(fraction.size(), fraction.find_first_not_of('0', 1)));
    }
    if (bad != std::errc{} || !fraction.empty()) {
      throw wrong(std::string(what) + " '" + shown(w) +
                  "' is no whole number that is not negative");
    }
    if (value < least || value > most) throw wrong(range(what, w, least, most));
    return value;
  }
  /// The next word as any number, which nobody asks for.
  void any_number(const char* what) {
    const std::string_view w = word();
    if (w.empty()) throw wrong(std::string(what) + " is missing");
    double value = 0;
    const auto [stop, bad] = std::from_chars(w.data(), w.data() + w.size(), value);
    // One that is too large or too small is a number, too.
    if (bad == std::errc::invalid_argument || stop != w.data() + w.size()) {
      throw wrong(std::string(what) + " '" + shown(w) + "' is no number");
    }
  }
  void expect_end() {
    if (!is_empty()) throw wrong("more than expected: '" + shown(line_) + "'");
  }

  [[nodiscard]] error wrong(const std::string& why) const { return wrong_at(number_, why); }
  [[nodiscard]] error wrong_at(std::uint64_t line, const std::string& why) const {
    return {errc::invalid_argument, name_ + ":" + std::to_string(line), why};
  }

 private:
  static bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }
  void skip_blanks() {
    while (!line_.empty() && is_blank(line_.front())) line_.remove_prefix(1);
  }
  static std::string range(const char* what, std::string_view w, std::uint64_t least,
                           std::uint64_t most) {
    return std::string(what) + " " + shown(w) + " is not from " + std::to_string(least) + " to " +
           std::to_string(most);
  }

  std::string_view rest_;
  std::string_view line_;
  std::string name_;
  std::uint64_t number_ = 0;
};

}  // namespace crosswarp::graph
