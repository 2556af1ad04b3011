// What a rank notes while it is traced: its kernels' events, the proxy's, the engine's, its host's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/trace.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp::trace {

using device::trace_kind;
using device::trace_record;

enum class engine_call : std::uint8_t {
  put,
  put_small,
  get,
  atomic,
  fence,
  flush,
  barrier,
  broadcast,
  reduce,
  progress,
};

enum class host_call : std::uint8_t {
  start,
  barrier,
  allgather,
  put,
  get,
  allocate,
  register_memory,
  launch,
  sync,
  finish,
};

enum class socket_event : std::uint8_t {
  connect,     ///< from the kernel's call to the connection, or to its failure
  accept,      ///< from Linux's connection to the kernel that takes it
  first_byte,  ///< from the connection to the first byte from the peer
  close,       ///< from the kernel's close to the descriptor's; bytes: what went by TCP, both ways
};

/// Two readings of one moment.
struct clock_pair {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;
};

/// From one clock to another, by two moments that were read on both.
class clock_map {
 public:
  clock_map(const clock_pair& first, const clock_pair& last) noexcept;
  [[nodiscard]] std::uint64_t to_ns(std::uint64_t ticks) const noexcept;

 private:
  clock_pair first_;
  double ns_per_tick_ = 1;
};

/// Nanoseconds of the clock that all processes of a machine share.
std::uint64_t machine_ns() noexcept;

class recorder {
 public:
  /// Room for `capacity` events of kernels, as many of the proxy and as many of the host.
  recorder(device_ref d, std::uint64_t capacity);

  /// In memory of the device.
  [[nodiscard]] device::trace_log* kernels() noexcept { return log_.data(); }
  /// Around each launch of the rank, on the stream it goes to.
  void begin_kernel(stream& on);
  void end_kernel(stream& on);
  /// Any thread.
  void note(const trace_record& r) noexcept { write(host_, reserve(host_), r); }
  /// Only who has the proxy's turn.
  void note_in_turn(const trace_record& r) noexcept { write(in_turn_, in_turn_.next++, r); }

  struct events {
    std::vector<trace_record> all;  ///< begin and end in machine_ns()
    std::uint64_t dropped = 0;
  };
  /// No kernel of this rank runs, and nobody notes anything.
  [[nodiscard]] events take();

 private:
  [[nodiscard]] clock_pair read_device_clock() const;

  device_ref device_;
  buffer<trace_record> of_kernels_;
  buffer<device::trace_log> log_;
  buffer<std::uint64_t> kernel_began_;
  std::vector<trace_record> of_host_;
  std::vector<trace_record> of_proxy_;
  device::trace_log host_;
  device::trace_log in_turn_;
  clock_pair host_start_;
  clock_pair device_start_;
};

/// Notes how long a scope took; nothing when there is no recorder.
class span {
 public:
  span(recorder* to, host_call what, std::uint64_t bytes = 0) noexcept;
  ~span();
  span(const span&) = delete;
  span& operator=(const span&) = delete;

 private:
  recorder* to_;
  trace_record r_;
};

}  // namespace crosswarp::trace
