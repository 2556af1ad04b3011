// A stream that stands still until the host lets it go on.
#pragma once

#include <chrono>
#include <thread>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/signal.hpp"
#include "crosswarp/launch.hpp"
#include "device.hpp"

namespace flow_test {

namespace cw = crosswarp;
namespace dev = crosswarp::device;

struct pass_gate {
  CW_FN void operator()(const dev::kernel_context&, dev::signal_line* gate) const {
    (void)dev::signal(*gate).wait(1, dev::wait_limits{});  // its end is what matters
  }
};

/// Work queued on its stream after close() waits until the host opens it. Made before the graph:
/// while it is closed nothing is allocated, which might wait for the kernel.
class gate {
 public:
  gate() : line_(test_device(), 1, cw::memory_kind::pinned), stream_(test_device()) {}
  ~gate() {
    if (opener_.joinable()) opener_.join();
    open();
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  /// The stream, with something on it that does not end.
  cw::stream& close() {
    cw::launch(stream_, {}, pass_gate{}, line_.data());
    return stream_;
  }
  void open() { dev::signal(*line_.data()).set(1); }
  void open_later(std::chrono::milliseconds when) {
    opener_ = std::thread([this, when] {
      std::this_thread::sleep_for(when);
      open();
    });
  }

 private:
  cw::buffer<dev::signal_line> line_;
  cw::stream stream_;
  std::thread opener_;
};

}  // namespace flow_test
