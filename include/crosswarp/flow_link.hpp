// Links on which kernels send and receive by themselves: the host makes them.
//
//   cw::flow::device_link link(w, 0, 1, 4096, 4);     // from rank 0 to rank 1, 4 packets of 4 KiB
//   cw::launch(w, {}, produce_or_consume{}, link.device());
#pragma once

#include <chrono>
#include <memory>
#include <variant>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/flow.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::flow {

/// See device/flow.hpp for what kernels do with it.
class device_link {
 public:
  /// From one rank to another, by loads and stores where they are mapped, else by the proxy. Ranks
  /// are launched together, or the sender is done before the receiver begins and has no more than
  /// `buffers` packets. Collective, and so is the end, as for a symmetric_buffer.
  /// A link whose receiver has not heard `closed` may have words and packets under way: behind the
  /// proxy, kernels of both ends call `proxy.queue(0).quiet(g)` of their device::world before it
  /// ends, or what is allocated there next is written to.
  /// Throws error(invalid_argument), error(out_of_memory), error(not_supported) when no path leads
  /// from one to the other.
  device_link(world& w, int from, int to, std::size_t packet_bytes, int buffers);
  /// Between two kernels of a device, or one of them and the host, in memory that both reach.
  /// Both ends take device(). The host is a device::thread_group.
  device_link(device_ref d, std::size_t packet_bytes, int buffers,
              std::chrono::nanoseconds timeout = std::chrono::seconds(30));

  /// For kernels, by value. On ranks that are no end of it every call returns `invalid`.
  [[nodiscard]] const device::flow::link& device() const noexcept { return view_; }

 private:
  std::variant<symmetric_buffer<std::byte>, buffer<std::byte>> memory_;
  device::flow::link view_;
};

}  // namespace crosswarp::flow
