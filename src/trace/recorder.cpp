#include "recorder.hpp"

#include <algorithm>
#include <ctime>

#include "clock_kernel.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::trace {

std::uint64_t machine_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

namespace {

/// The tightest of some tries: reading two clocks takes time, and the thread may lose its core.
clock_pair read_host_clock() noexcept {
  clock_pair best;
  std::uint64_t width = ~0ULL;
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t before = machine_ns();
    const std::uint64_t ticks = device::trace_ticks();
    const std::uint64_t after = machine_ns();
    if (after - before >= width) continue;
    width = after - before;
    best = {ticks, before + width / 2};
  }
  return best;
}

}  // namespace

clock_map::clock_map(const clock_pair& first, const clock_pair& last) noexcept : first_(first) {
  if (last.ticks > first.ticks && last.ns > first.ns) {
    ns_per_tick_ =
        static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks);
  }
}

std::uint64_t clock_map::to_ns(std::uint64_t ticks) const noexcept {
  const auto since = static_cast<double>(static_cast<std::int64_t>(ticks - first_.ticks));
  return first_.ns + static_cast<std::uint64_t>(static_cast<std::int64_t>(since * ns_per_tick_));
}

recorder::recorder(device_ref d, std::uint64_t capacity)
    : device_(d),
      of_kernels_(d, static_cast<std::size_t>(capacity)),
      log_(d, 1),
      kernel_began_(d, 1),
      of_host_(static_cast<std::size_t>(capacity)),
      of_proxy_(of_host_.size()),
      host_{of_host_.data(), capacity, 0},
      in_turn_{of_proxy_.data(), capacity, 0},
      host_start_(read_host_clock()),
      device_start_(read_device_clock()) {
  // Its pages come now, and not when something is to be measured.
  if (d.kind() == device_kind::cpu) std::fill_n(of_kernels_.data(), capacity, trace_record{});
  // A GPU loads it when it is first used, which must not be while another kernel spins.
  stream first(d);
  end_kernel(first);
  first.sync();
  const device::trace_log log{of_kernels_.data(), capacity, 0};
  log_.write(std::span(&log, 1));
}

void recorder::begin_kernel(stream& on) {
  stamp_begin(on, {log_.data(), kernel_began_.data()});
}
void recorder::end_kernel(stream& on) {
  stamp_end(on, {log_.data(), kernel_began_.data()});
}

clock_pair recorder::read_device_clock() const {
  return device_.kind() == device_kind::cpu ? read_host_clock() : read_clock(device_);
}

recorder::events recorder::take() {
  events out;
  const auto add = [&](const trace_record* records, std::uint64_t count, const clock_map& clock) {
    for (std::uint64_t i = 0; i < count; ++i) {
      trace_record r = records[i];
      r.begin = clock.to_ns(r.begin);
      r.end = clock.to_ns(r.end);
      out.all.push_back(r);
    }
  };
  const device::trace_log log = log_.read()[0];
  const std::uint64_t kept = std::min(log.next, log.capacity);
  std::vector<trace_record> of_kernels(static_cast<std::size_t>(kept));
  exec::copy_now(device_, of_kernels.data(), of_kernels_.data(), kept * sizeof(trace_record));
  clock_pair now = device_start_;
  try {
    now = read_device_clock();
  } catch (const error&) {
    // Somebody holds the GPU: then its clock is taken to run as the host's does.
  }
  add(of_kernels.data(), kept, {device_start_, now});
  out.dropped = log.next - kept;
  const clock_map clock(host_start_, read_host_clock());
  for (const device::trace_log* l : {&host_, &in_turn_}) {
    const std::uint64_t count = std::min(l->next, l->capacity);
    add(l->records, count, clock);
    out.dropped += l->next - count;
  }
  return out;
}

span::span(recorder* to, host_call what, std::uint64_t bytes) noexcept : to_(to) {
  if (to_ == nullptr) return;
  r_.kind = trace_kind::host;
  r_.what = static_cast<std::uint8_t>(what);
  r_.bytes = bytes;
  r_.begin = device::trace_ticks();
}

span::~span() {
  if (to_ == nullptr) return;
  r_.end = device::trace_ticks();
  to_->note(r_);
}

}  // namespace crosswarp::trace
