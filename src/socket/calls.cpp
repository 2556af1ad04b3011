// What kernels ask for by calls. One worker hears them all, and another one may carry them out.
#include <atomic>

#include "transports/tcp/address.hpp"
#include "workers.hpp"

namespace crosswarp::socket_impl {

namespace words = device::socket;

bool worker::hear_calls() {
  if (index_ != 0) return false;
  bool any = false;
  for (std::uint32_t i = 0; i < m_.calls; ++i) {
    // pairs with service::ask()
    const std::uint64_t number = std::atomic_ref(m_.call_bells[i]).load(std::memory_order_acquire);
    if (number == calls_seen_[i]) continue;
    calls_seen_[i] = number;
    // Copied, then judged: the kernel may change it at any time.
    const words::call_request r = m_.requests[i];
    hand_out(i, number, r);
    any = true;
  }
  return any;
}

/// To who has a place for a new socket, or whose the socket is.
void worker::hand_out(std::uint32_t place, std::uint64_t number, const words::call_request& r) {
  if (stopped_) return answer(place, number, -ESHUTDOWN);
  const bool begins = r.what == words::call::listen || r.what == words::call::connect;
  worker* const to =
      begins ? all_.reserve() : &all_.owner(handle(static_cast<std::int64_t>(r.socket)).index());
  if (to == nullptr) return answer(place, number, -EMFILE);
  post(*to, [=](worker& w) {
    const std::int64_t result = w.carry_out(r);
    w.answer(place, number, w.stopped_ ? -ESHUTDOWN : result);
  });
}

void worker::answer(std::uint32_t place, std::uint64_t number, std::int64_t result) {
  m_.replies[place].result = result;
  // pairs with service::ask() and reclaim(): the result, and what a new socket's words say
  std::atomic_ref(m_.replies[place].number).store(number, std::memory_order_release);
}

std::int64_t worker::carry_out(const words::call_request& r) {
  switch (r.what) {
    case words::call::listen:
      return start_listen(r);
    case words::call::connect:
      return start_connect(r);
    case words::call::set_option:
    case words::call::get_option: {
      const entry* const e = find(handle(static_cast<std::int64_t>(r.socket)));
      if (e == nullptr) return -EBADF;
      if (e->fd < 0) return -ENOTCONN;  // it failed
      if (r.what == words::call::get_option) return tcp::get_option(e->fd, r.which);
      return tcp::set_option(e->fd, r.which, r.value);
    }
  }
  return -ENOSYS;
}

/// Null unless a kernel has it.
worker::entry* worker::find(handle named) {
  if (!named || named.index() >= m_.sockets) return nullptr;
  entry& e = at(named.index());
  return e.is != kind::free && e.words.who() == named ? &e : nullptr;
}

}  // namespace crosswarp::socket_impl
