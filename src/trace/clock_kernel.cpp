#include "trace/clock_kernel.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::trace {

namespace {

constexpr std::uint64_t readings = 16;
constexpr std::uint64_t second = 1'000'000'000;

struct clock_words {
  std::uint64_t asked;     ///< by the host: which reading
  std::uint64_t answered;  ///< by the kernel
  std::uint64_t shown[readings];
};

}  // namespace

struct answer_kernel {
  CW_FN void operator()(const device::kernel_context& /*ctx*/, clock_words* words) const {
    const device::system_atomic<std::uint64_t> asked(words->asked);
    const device::wait_limits a_second{nullptr, second};
    for (std::uint64_t i = 0; i < readings; ++i) {
      const auto is_asked = [&] { return asked.load(device::order::relaxed) > i; };
      if (device::poll_until(is_asked, a_second) != status::ok) return;
      words->shown[i] = device::trace_ticks();
      device::system_atomic<std::uint64_t>(words->answered)
          .store(i + 1, device::order::release);  // pairs with read_clock()
    }
  }
};

clock_pair read_clock(device_ref d) {
  buffer<clock_words> words(d, 1, memory_kind::pinned);
  clock_words& w = words.data()[0];
  const device::system_atomic<std::uint64_t> asked(w.asked);
  const device::system_atomic<std::uint64_t> answered(w.answered);
  stream s(d);
  launch(s, {}, answer_kernel{}, words.data());
  // The device's clock showed `shown` between two looks at the host's: the tightest counts.
  clock_pair best;
  std::uint64_t width = ~0ULL;
  for (std::uint64_t i = 0; i < readings; ++i) {
    const std::uint64_t before = machine_ns();
    asked.store(i + 1, device::order::relaxed);
    while (answered.load(device::order::acquire) <= i) {  // pairs with answer_kernel
      if (machine_ns() - before > second) {
        throw error(errc::timeout, "trace", "the GPU's clock was not read within a second");
      }
    }
    const std::uint64_t after = machine_ns();
    if (after - before >= width) continue;
    width = after - before;
    best = {w.shown[i], before + width / 2};
  }
  s.sync();
  return best;
}

struct stamp_kernel {
  CW_FN void operator()(const device::kernel_context& /*ctx*/, kernel_stamps s, bool end) const {
    if (!end) {
      *s.began = device::trace_ticks();
      return;
    }
    device::trace_record r;
    r.begin = *s.began;
    r.end = device::trace_ticks();
    r.kind = device::trace_kind::kernel;
    device::write(*s.log, device::reserve(*s.log), r);
  }
};

void stamp_begin(stream& on, const kernel_stamps& s) {
  exec::launch(on, {}, stamp_kernel{}, s, false);
}
void stamp_end(stream& on, const kernel_stamps& s) {
  exec::launch(on, {}, stamp_kernel{}, s, true);
}

}  // namespace crosswarp::trace
