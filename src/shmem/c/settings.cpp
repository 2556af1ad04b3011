#include "settings.hpp"

#include <shmem.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/shmem.hpp"

namespace crosswarp::shmem_c {
namespace {

/// SMA_ is the prefix of old.
std::optional<std::string> read(const std::string& name) {
  if (auto v = options::read("SHMEM_" + name)) return v;
  return options::read("SMA_" + name);
}

/// Room for what the library itself puts in the heap: a program gets all that it asked for.
constexpr std::size_t own_room = 32U << 20U;

}  // namespace

std::size_t parse_size(const std::string& text, const std::string& what) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  constexpr std::string_view units = "KMGT";
  const std::size_t at =
      unit.size() == 1 ? units.find(static_cast<char>(std::toupper(unit.front()))) : units.npos;
  const bool known = end != text.c_str() && (unit.empty() || at != units.npos);
  if (at != units.npos) value = std::ldexp(value, 10 * (static_cast<int>(at) + 1));
  if (!known || !(value >= 1) || value >= 0x1p62) {
    throw error(errc::invalid_argument, what, "'" + text + "' is not a size such as 64M or 1.5G");
  }
  return static_cast<std::size_t>(value);
}

world_options options_from_environment() {
  if (read("DEBUG")) setenv("CROSSWARP_LOG", "debug", 0);
  world_options o = world_options::from_environment();
  o.device = device_ref::cpu();
  if (const auto v = read("SYMMETRIC_SIZE")) o.heap_bytes = parse_size(*v, "SHMEM_SYMMETRIC_SIZE");
  o.heap_bytes += own_room;
  // A wait of OpenSHMEM has no deadline; a PE that dies still ends it.
  if (!options::read("CROSSWARP_TIMEOUT")) o.timeout = std::chrono::hours(24 * 365);
  return o;
}

void show_information() {
  if (read("VERSION")) {
    std::printf("%s, OpenSHMEM %d.%d\n", SHMEM_VENDOR_STRING, SHMEM_MAJOR_VERSION,
                SHMEM_MINOR_VERSION);
  }
  if (read("INFO")) {
    std::printf(
        "SHMEM_SYMMETRIC_SIZE  bytes of symmetric heap, such as 64M or 1.5G (now %s)\n"
        "SHMEM_DEBUG           tell on stderr what the library does\n"
        "SHMEM_VERSION         show the version\n"
        "SHMEM_INFO            show this\n"
        "and those of `crosswarp info --env`\n",
        read("SYMMETRIC_SIZE").value_or("64M").c_str());
  }
}

}  // namespace crosswarp::shmem_c
