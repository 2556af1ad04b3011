// Every environment variable the library reads, in one place.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crosswarp::options {

struct setting {
  std::string_view name;      ///< CROSSWARP_...
  std::string_view fallback;  ///< what holds when it is not set
  std::string_view meaning;
};

/// All of them, for `crosswarp info`.
const std::vector<setting>& all();

/// The value of a variable, ours or another launcher's; none when unset or empty.
std::optional<std::string> read(std::string_view name);
/// As an integer; throws error(invalid_argument) naming the variable, and what it should be, when
/// it is something else.
std::optional<long> read_integer(std::string_view name, std::string_view should_be = "an integer");
/// "64M", "1GiB", "4096" as bytes; throws error(invalid_argument) naming `what`.
std::size_t parse_bytes(std::string_view text, std::string_view what);
/// 67108864 as "64 MiB".
std::string print_bytes(std::size_t bytes);

}  // namespace crosswarp::options
