// What happened when: events that kernels and the host note while CROSSWARP_TRACE asks for it.
//
// A log is an array and a counter. Whoever notes an event takes the next place; when all are
// taken, events are only counted. The log of kernels is in the device's memory and read when they
// have ended.
#pragma once

#include <cstdint>

#include "crosswarp/device/atomic.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::device {

enum class trace_kind : std::uint8_t {
  command,  ///< a kernel's command to the proxy, from the call to its return; what: proxy_call
  wait,     ///< of a kernel, for another rank
  proxy,    ///< the host's work for a command, from its reading to its end; what: proxy_call
  engine,   ///< a call of an engine
  host,     ///< a call of the world
  mapped,   ///< a kernel's operation by loads and stores; what: proxy_call
  kernel,   ///< a launch on the world's stream, from its beginning on the device to its end
  socket,   ///< of a connection of kernels, as its worker saw it
};

struct trace_record {
  std::uint64_t begin = 0;  ///< trace_ticks()
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
  std::uint64_t id = 0;         ///< of a command: see trace_id()
  std::int32_t pe = -1;         ///< the other rank
  std::uint32_t block = 0;      ///< of the kernel
  std::uint32_t waited_ns = 0;  ///< for a slot of the queue
  trace_kind kind = trace_kind::host;
  std::uint8_t what = 0;     ///< of that kind
  std::uint8_t outcome = 0;  ///< a status
};
static_assert(sizeof(trace_record) == 48);

/// The same for a command and for the host's work on it, and unique in a rank.
CW_FN constexpr std::uint64_t trace_id(std::uint32_t queue, std::uint64_t ticket) noexcept {
  return (static_cast<std::uint64_t>(queue) + 1) << 40U | (ticket & 0xffffffffffU);
}

struct trace_log {
  trace_record* records = nullptr;
  std::uint64_t capacity = 0;
  std::uint64_t next = 0;  ///< events so far, kept or not
};

/// A clock that is cheap to read; the host knows how it relates to its own.
CW_FN inline std::uint64_t trace_ticks() noexcept;

/// The calling thread's block, among those of its device.
CW_FN inline std::uint32_t trace_block() noexcept;

/// The next place. Asked for when an event begins: it takes its time on a GPU, which then passes
/// together with the event's own.
[[nodiscard]] CW_FN inline std::uint64_t reserve(trace_log& log) noexcept {
  // Relaxed: read when all who wrote are known to have ended.
  return system_atomic<std::uint64_t>(log.next).fetch_add(1, order::relaxed);
}

CW_FN inline void write(const trace_log& log, std::uint64_t place, const trace_record& r) noexcept {
  if (place < log.capacity) log.records[place] = r;
}

}  // namespace crosswarp::device

#include "crosswarp/device/poll.hpp"  // the clock and the block: what differs from device to device
