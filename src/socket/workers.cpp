#include "workers.hpp"

#include <poll.h>

#include <algorithm>
#include <array>

namespace crosswarp::socket_impl {

workers::workers(const device::socket::memory& memory, ring_pool& rings,
                 const socket::service_options& o, std::vector<std::unique_ptr<engine>> engines,
                 bool on_gpu, lanes* ways, trace::recorder* events)
    : m(memory),
      options(o),
      pool(rings),
      hears_itself(on_gpu),
      around(ways),
      traced(events),
      count_(static_cast<std::uint32_t>(engines.size())) {
  for (auto& e : engines) {
    all_.push_back(
        std::make_unique<worker>(*this, static_cast<std::uint32_t>(all_.size()), std::move(e)));
  }
  // Not before: each may write to any other.
  try {
    for (const auto& w : all_) w->start();
  } catch (...) {
    end();
    throw;
  }
}

workers::~workers() {
  end();
}

void workers::end() noexcept {
  for (const auto& w : all_) w->quit();
  for (const auto& w : all_) w->join();
  // What was written to one that had ended. Reading a letter may write others.
  while (std::any_of(all_.begin(), all_.end(), [](const auto& w) { return w->read_last_mail(); })) {
  }
  for (const auto& w : all_) w->drop_descriptors();
}

void workers::stop() noexcept {
  stop_.store(true, std::memory_order_relaxed);
  for (const auto& w : all_) w->rouse();
}

socket::service_stats workers::stats() const {
  socket::service_stats s;
  s.ring_bytes = pool.bytes_in_use();
  for (const auto& w : all_) w->add_to(s);
  return s;
}

// ---- threads of CPU kernels

void workers::lend() noexcept {
  bool idle = true;
  for (const auto& w : all_) idle = w->lend() && idle;
  if (!idle) return;
  // One sleeps on the engines, for all: who rings a bell has it heard itself.
  if (sleeper_.exchange(true, std::memory_order_acquire)) return;
  sleep();
  sleeper_.store(false, std::memory_order_release);
  for (const auto& w : all_) (void)w->lend();
}

void workers::sleep() noexcept {
  constexpr timespec limit{0, 50'000};
  std::array<pollfd, 2 * most> wakers;
  std::size_t n = 0;
  for (const auto& w : all_) {
    wakers[n++] = {w->bell(), POLLIN, 0};
    wakers[n++] = {w->engine_descriptor(), POLLIN, 0};
  }
  ppoll(wakers.data(), n, &limit, nullptr);
  for (std::size_t i = 0; i < n; i += 2) {
    if ((wakers[i].revents & POLLIN) != 0) (void)all_[i / 2]->was_called();
  }
}

// ---- limits of all

worker* workers::reserve() noexcept {
  if (worker* const w = try_reserve()) return w;
  // In one order with who gives a place back and then asks: this sees the place, or that sees this.
  short_of_places_.store(true);
  return try_reserve();
}

worker* workers::try_reserve() const noexcept {
  for (;;) {
    const auto most_left = std::max_element(
        all_.begin(), all_.end(),
        [](const auto& a, const auto& b) { return a->places_left() < b->places_left(); });
    if ((*most_left)->reserve()) return most_left->get();
    // Another took its last one meanwhile.
    if (std::none_of(all_.begin(), all_.end(),
                     [](const auto& w) { return w->places_left() > 0; })) {
      return nullptr;
    }
  }
}

bool workers::admit_peer(const std::string& name) {
  if (name.empty()) return true;
  const std::lock_guard lock(peers_guard_);
  const auto found = per_peer_.find(name);
  if (found != per_peer_.end() && found->second >= options.per_peer) return false;
  ++per_peer_[name];
  return true;
}

void workers::dismiss_peer(const std::string& name) {
  if (name.empty()) return;
  const std::lock_guard lock(peers_guard_);
  if (--per_peer_[name] == 0) per_peer_.erase(name);
}

// ---- what CPU kernels call

void lend_thread(workers& w) noexcept {
  w.lend();
}
void call_worker(workers& w, std::uint32_t socket) noexcept {
  w.attend(socket);
}
void call_workers(workers& w) noexcept {
  w.attend_calls();
}

}  // namespace crosswarp::socket_impl
