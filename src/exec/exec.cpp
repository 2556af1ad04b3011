// Devices, streams, events and buffers: choosing the backend.
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <fstream>
#include <list>
#include <mutex>
#include <thread>

#include "backends.hpp"
#include "cpu/block.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp {

// ---- devices

device_ref device_ref::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "auto") return cuda_device_count() > 0 ? cuda(0) : cpu();
  if (text == "cuda") return cuda(0);
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    const std::string_view number = text.substr(prefix.size());
    int ordinal = -1;
    const auto [end, bad] = std::from_chars(number.begin(), number.end(), ordinal);
    if (bad == std::errc{} && end == number.end() && ordinal >= 0) return cuda(ordinal);
  }
  throw error(errc::invalid_argument, "device",
              "'" + std::string(text) + "' is none of cpu, cuda, cuda:N, auto");
}

std::string device_ref::name() const {
  if (kind_ == device_kind::cuda) return "cuda:" + std::to_string(ordinal_);
  return schedule_ == nullptr ? "cpu" : "cpu (scheduled)";
}

namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

std::vector<device_info> devices() {
  std::vector<device_info> all = exec::cuda::list();
  all.insert(all.begin(),
             {device_ref::cpu(), cpu_model(), static_cast<int>(std::thread::hardware_concurrency()),
              static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                  static_cast<std::size_t>(sysconf(_SC_PAGESIZE))});
  return all;
}

int cuda_device_count() noexcept {
  return exec::cuda::device_count();
}
std::string cuda_absence_reason() {
  return exec::cuda::absence_reason();
}

namespace exec {

backend& backend_of(device_ref d) {
  return d.kind() == device_kind::cuda ? cuda::instance() : cpu::instance();
}

std::unique_ptr<stream_backend> backend::borrow_stream(device_ref d, void* /*native*/) {
  throw error(errc::not_supported, "stream", d.name() + " has no streams to borrow");
}

void check_shape(const launch_shape& shape) {
  if (shape.blocks < 1 || shape.threads < 1 || shape.threads > cpu::max_block_threads) {
    throw error(errc::invalid_argument, "launch",
                std::to_string(shape.blocks) + " blocks of " + std::to_string(shape.threads) +
                    " threads: at least 1 block, 1 to " + std::to_string(cpu::max_block_threads) +
                    " threads");
  }
}

void stream_backend::run(cpu_grid /*grid*/) {  // NOLINT(performance-unnecessary-value-param)
  throw error(errc::not_supported, "launch", "a CPU grid on a stream of another device");
}

device::grid_words* stream_backend::grid_barrier(int /*grids*/) {
  throw error(errc::not_supported, "launch", "a GPU grid on a stream of another device");
}

namespace {

struct launch_listeners {
  std::mutex mutex;
  std::list<std::pair<int, std::function<void()>>> all;  // by ordinal
  std::atomic<int> count{0};

  static launch_listeners& instance() {
    static launch_listeners l;
    return l;
  }
};

}  // namespace

std::shared_ptr<void> on_launch(device_ref d, std::function<void()> f) {
  if (d.kind() == device_kind::cpu) return nullptr;
  launch_listeners& l = launch_listeners::instance();
  const std::scoped_lock lock(l.mutex);
  const auto it = l.all.emplace(l.all.end(), d.ordinal(), std::move(f));
  l.count.fetch_add(1, std::memory_order_relaxed);
  return {nullptr, [it](void*) {
            launch_listeners& from = launch_listeners::instance();
            const std::scoped_lock gone(from.mutex);
            from.all.erase(it);
            from.count.fetch_sub(1, std::memory_order_relaxed);
          }};
}

void cuda::note_launch(int device) {
  launch_listeners& l = launch_listeners::instance();
  if (l.count.load(std::memory_order_relaxed) == 0) return;
  const std::scoped_lock lock(l.mutex);
  for (const auto& [ordinal, f] : l.all) {
    if (ordinal == device) f();
  }
}

void* allocate(device_ref d, memory_kind kind, std::size_t bytes) {
  return backend_of(d).allocate(d, kind, bytes);
}
void release(device_ref d, memory_kind kind, void* p) noexcept {
  if (p != nullptr) backend_of(d).release(d, kind, p);
}
void copy_now(device_ref d, void* dst, const void* src, std::size_t bytes) {
  backend_of(d).copy_now(d, dst, src, bytes);
}

}  // namespace exec

// ---- streams and events

event::event(device_ref d) : backend_(exec::backend_of(d).make_event(d)) {}
event::~event() = default;
event::event(event&&) noexcept = default;
event& event::operator=(event&&) noexcept = default;
bool event::ready() const {
  return backend_->ready();
}
void event::sync() const {
  backend_->sync();
}
std::chrono::nanoseconds event::since(const event& earlier) const {
  return backend_->since(*earlier.backend_);
}

stream::stream(device_ref d) : device_(d), backend_(exec::backend_of(d).make_stream(d)) {}
stream::stream(device_ref d, std::unique_ptr<exec::stream_backend> backend) noexcept
    : device_(d), backend_(std::move(backend)) {}
stream stream::borrow(device_ref d, void* native) {
  return {d, exec::backend_of(d).borrow_stream(d, native)};
}
stream::~stream() = default;
stream::stream(stream&&) noexcept = default;
stream& stream::operator=(stream&&) noexcept = default;
void stream::sync() {
  if (before_sync_) before_sync_();
  backend_->sync();
  if (after_sync_) after_sync_();
}
void stream::record(event& e) {
  backend_->record(e.backend());
}
void stream::wait(const event& e) {
  backend_->wait(e.backend());
}
void stream::copy(void* dst, const void* src, std::size_t bytes) {
  backend_->copy(dst, src, bytes);
}
bool stream::is_recording() const {
  return backend_->is_recording();
}
void* stream::native() const noexcept {
  return backend_->native();
}

recording::recording(stream& s, const std::function<void()>& queue) : device_(s.device()) {
  s.backend().begin_recording();
  try {
    queue();
  } catch (...) {
    try {
      (void)s.backend().end_recording();
    } catch (const error&) {
      // What `queue` threw says why.
    }
    throw;
  }
  backend_ = s.backend().end_recording();
}
recording::~recording() = default;
recording::recording(recording&&) noexcept = default;
recording& recording::operator=(recording&&) noexcept = default;
void recording::replay(stream& s) {
  if (s.device() != device_) {
    throw error(errc::invalid_argument, "recording", "the stream is on another device");
  }
  s.begin_launch(s);
  backend_->replay(s.backend());
  s.end_launch(s);
}

}  // namespace crosswarp
