#include "crosswarp/options.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "crosswarp/error.hpp"

namespace crosswarp::options {

const std::vector<setting>& all() {
  static const std::vector<setting> table = {
      {"CROSSWARP_RANK", "0", "this process's rank; set by the launcher"},
      {"CROSSWARP_SIZE", "1", "number of ranks; set by the launcher"},
      {"CROSSWARP_BOOTSTRAP", "",
       "where ranks meet, tcp:HOST:PORT or unix:@NAME; set by the launcher"},
      {"CROSSWARP_SECRET", "", "the job's secret, 32 hex digits; set by the launcher"},
      {"CROSSWARP_NODES", "1", "pretend that the ranks are spread over that many machines"},
      {"CROSSWARP_DEVICE", "cpu", "where kernels run: cpu, cuda, cuda:N, auto"},
      {"CROSSWARP_HEAP", "64M",
       "bytes of symmetric heap on each rank, such as 4096, 64K, 512M, 2G"},
      {"CROSSWARP_HEAP_KIND", "device", "where the heap lies: device, or pinned (host memory)"},
      {"CROSSWARP_PATH", "auto",
       "way to other ranks: auto, mapped (loads and stores only), proxy (commands to the host), "
       "rdma (entries that kernels write for the soft NIC)"},
      {"CROSSWARP_ENGINE", "auto", "what the proxy works with: auto, ucx, mpi, local"},
      {"CROSSWARP_ENGINE_PATH", "", "folder with engines, looked at before the usual ones"},
      {"CROSSWARP_RDMA_WIRE", "auto",
       "how soft NICs reach each other: auto, socket, ucx; the latter two within a process, too"},
      {"CROSSWARP_SOCKET_ENGINE", "auto",
       "how sockets of kernels reach Linux's: auto, epoll, io_uring (epoll where there is none)"},
      {"CROSSWARP_QUEUES", "0", "command queues of a rank; 0: one for each multiprocessor"},
      {"CROSSWARP_QUEUE_DEPTH", "64", "commands that a queue holds, a power of two"},
      {"CROSSWARP_QUEUE_KIND", "pinned",
       "where queues lie: pinned (host memory), or device (the GPU's own)"},
      {"CROSSWARP_STAGING", "never",
       "always: the proxy's data goes through host memory at both ends, for heaps that the engine "
       "cannot reach"},
      {"CROSSWARP_STATS", "0", "1: time the proxy's operations, and show a table at the end"},
      {"CROSSWARP_TRACE", "", "file for a trace of all ranks, for Perfetto and crosswarp trace"},
      {"CROSSWARP_TRACE_EVENTS", "200000",
       "room for events of each rank's kernels, as many of its proxy and as many of its host"},
      {"CROSSWARP_PROGRESS", "thread", "who works for the proxy: thread, or user (progress())"},
      {"CROSSWARP_TIMEOUT", "30",
       "seconds after which a wait gives up, a whole number; programs of shmem.h: none unless set"},
      {"CROSSWARP_LOG", "warn",
       "what is told on stderr, at most: off, error, warn, info, debug, trace"},
      {"CROSSWARP_TUNING", "",
       "file by which collectives choose, as crosswarp tune writes it; none: the defaults; unset: "
       "crosswarp/tuning in XDG_CONFIG_HOME or ~/.config"},
      {"CROSSWARP_SELF_TEST", "1", "0 skips the check of each mapped peer at the start"},
  };
  return table;
}

std::optional<std::string> read(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<long> read_integer(std::string_view name, std::string_view should_be) {
  const auto text = read(name);
  if (!text) return std::nullopt;
  long value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, bad] = std::from_chars(text->data(), end, value);
  if (bad != std::errc{} || stop != end) {
    throw error(errc::invalid_argument, std::string(name),
                "'" + *text + "' is not " + std::string(should_be));
  }
  return value;
}

std::size_t parse_bytes(std::string_view text, std::string_view what) {
  std::size_t value = 0;
  const auto [stop, bad] = std::from_chars(text.begin(), text.end(), value);
  std::string_view unit(stop, static_cast<std::size_t>(text.end() - stop));
  unsigned shift = 0;
  if (!unit.empty()) {
    constexpr std::string_view units = "KMGT";
    const std::size_t at =
        units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front()))));
    shift = at == std::string_view::npos ? 99 : 10 * (static_cast<unsigned>(at) + 1);
    unit.remove_prefix(1);
  }
  const bool known = unit.empty() || unit == "B" || unit == "iB";
  if (bad != std::errc{} || shift > 40 || !known ||
      value > std::numeric_limits<std::size_t>::max() >> shift) {
    throw error(errc::invalid_argument, std::string(what),
                "'" + std::string(text) + "' is not a size such as 4096, 64K, 512M or 2G");
  }
  return value << shift;
}

std::string print_bytes(std::size_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g %s", value, units[unit]);
  return text;
}

}  // namespace crosswarp::options
