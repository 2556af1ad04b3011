// Bodies of proxy.hpp.
#pragma once

#include <cstddef>
#include <cstring>

#include "crosswarp/device/impl/cpu_hooks.hpp"
#include "crosswarp/device/impl/rdma_path_impl.hpp"
#include "crosswarp/device/proxy.hpp"

namespace crosswarp::device {

namespace impl {

CW_FN inline std::uint64_t tagged(std::uint32_t part, std::uint32_t tag) noexcept {
  return static_cast<std::uint64_t>(tag) << 32U | part;
}

CW_FN constexpr std::uint32_t log2_of(std::uint32_t power) noexcept {
  std::uint32_t n = 0;
  while ((1U << n) < power) ++n;
  return n;
}

/// Up to 8 bytes as a word, the rest zero.
CW_FN inline std::uint64_t load_bytes(const std::byte* from, std::size_t count) noexcept {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  }
  return word;
}

inline constexpr std::size_t inline_bytes = 16;

CW_FN inline proxy_command make_command(proxy_op op, int pe, remote_address at) noexcept {
  proxy_command c;
  c.op = op;
  c.pe = pe;
  c.region = at.region;
  c.remote = at.offset;
  return c;
}

CW_FN inline void add_signal(proxy_command& c, remote_address at, std::uint64_t value,
                             signal_op how) noexcept {
  c.what = static_cast<std::uint8_t>(how);
  c.signal_region = at.region;
  c.a = at.offset;
  c.b = value;
}

/// The bytes travel in the command.
CW_FN inline void take_inline(proxy_command& c, const void* from, std::size_t bytes) noexcept {
  const auto* p = static_cast<const std::byte*>(from);
  c.op = proxy_op::put_inline;
  c.width = static_cast<std::uint8_t>(bytes);
  c.local = load_bytes(p, bytes < 8 ? bytes : 8);
  c.bytes = bytes > 8 ? load_bytes(p + 8, bytes - 8) : 0;
}

}  // namespace impl

CW_FN inline proxy_queue::proxy_queue(const proxy_memory& m, std::uint32_t index,
                                      const wait_limits& limits) noexcept
    : entries_(m.entries + static_cast<std::size_t>(index) * m.depth),
      replies_(m.replies + static_cast<std::size_t>(index) * m.depth),
      head_(m.heads + index),
      tail_(m.tails + index),
      seats_(m.seats + static_cast<std::size_t>(index) * m.depth),
      depth_(m.depth),
      shift_(impl::log2_of(m.depth)),
      index_(index),
      host_(m.host),
      rdma_(m.rdma),
      // Without the fault word: the proxy answers every command, also when a rank is lost, and
      // those to other ranks go on.
      limits_{nullptr, limits.timeout_ns, limits.late, -1, limits.trace} {}

// ---- a slot's way: taken by the ticket's owner, read by the host, answered, left
//
// A slot may be used by lap L when the host has read the entry of lap L-1 (consumed) and when the
// owner of lap L-1 no longer needs its reply (seat == 2 L). An owner that gave up waiting leaves
// 2 L + 1: then the slot is free once the host's late reply is there.

CW_FN inline bool proxy_queue::is_free(std::uint64_t ticket) noexcept {
  const auto read = [&] { return reached(consumed_ + depth_, ticket + 1); };
  if (!read()) {
    const device_atomic<std::uint64_t> known(tail_->consumed);
    consumed_ = known.load(order::acquire);  // pairs with the release below, by another thread
    if (!read()) {
      const system_atomic<std::uint64_t> count(head_->consumed);
      consumed_ = count.load(order::acquire);  // pairs with proxy::drain()
      known.store(consumed_, order::release);  // pairs with the load above
      if (!read()) return false;
    }
  }
  // The slot's last owner was this very object, and is done with it.
  if (own_ >= depth_) return true;
  const auto slot = static_cast<std::size_t>(ticket & (depth_ - 1));
  const std::uint64_t lap = ticket >> shift_;
  // pairs with wait_reply(), issue_alone()
  const std::uint64_t seat = device_atomic<std::uint64_t>(seats_[slot]).load(order::acquire);
  if (seat == 2 * lap) return true;
  if (seat != 2 * lap + 1) return false;
  const system_atomic<std::uint64_t> stamp(replies_[slot].stamp);
  return stamp.load(order::acquire) >> 8U == lap;  // pairs with proxy::reply()
}

CW_FN inline status proxy_queue::take_slot(held_slot& mine, deadline& by) noexcept {
  const device_atomic<std::uint64_t> next(tail_->next);
  std::uint64_t ticket = next_;
  const auto try_to = [&] {
    for (;;) {
      if (is_free(ticket)) {
        // Relaxed: what the slot needs was acquired by is_free(). On failure: the ticket to try.
        if (next.compare_exchange(ticket, ticket + 1, order::relaxed)) return true;
        own_ = 0;
        continue;
      }
      const std::uint64_t now = next.load(order::relaxed);
      if (now == ticket) break;
      ticket = now;
      own_ = 0;
    }
    call_host<exec::cpu::lend_thread>(host_);
    return false;
  };
  if (!try_to()) {
    const std::uint64_t begin = now_ns();
    if (const status s = poll_until(try_to, by); s != status::ok) return s;
    const std::uint64_t waited = now_ns() - begin;
    mine.waited_ns = waited < 0xffffffffU ? static_cast<std::uint32_t>(waited) : 0xffffffffU;
  }
  next_ = ticket + 1;
  own_ += own_ < depth_ ? 1 : 0;
  mine.lap = ticket >> shift_;
  mine.slot = static_cast<std::uint32_t>(ticket & (depth_ - 1));
  return status::ok;
}

CW_FN inline void proxy_queue::write(const proxy_command& c, const held_slot& mine,
                                     publish how) noexcept {
  std::uint32_t parts[16];
  std::memcpy(parts, &c, sizeof(c));
  parts[offsetof(proxy_command, waited_ns) / 4] = mine.waited_ns;
  const auto tag = static_cast<std::uint32_t>(mine.lap + 1);
  std::uint64_t* const words = entries_[mine.slot].words;
  // A CPU orders its stores for nothing; and what came before the command comes before its effect.
  if (how == publish::ordered || release_is_free()) {
    // Before the other words: then the fence has nothing of this command to wait for.
    // pairs with read_command()
    system_atomic<std::uint64_t>(words[0]).store(impl::tagged(parts[0], tag), order::release);
    system_atomic<std::uint64_t>(words[1]).store(impl::tagged(parts[1], tag), order::relaxed);
  } else {
    store_pair(words, impl::tagged(parts[0], tag), impl::tagged(parts[1], tag));
  }
  for (int i = 2; i < 16; i += 2) {
    store_pair(words + i, impl::tagged(parts[i], tag), impl::tagged(parts[i + 1], tag));
  }
}

CW_FN inline proxy_queue::answer proxy_queue::wait_reply(const held_slot& mine,
                                                         deadline& by) noexcept {
  const system_atomic<std::uint64_t> stamp(replies_[mine.slot].stamp);
  std::uint64_t seen = 0;
  const auto look = [&] {
    seen = stamp.load(order::acquire);  // pairs with proxy::reply()
    return seen >> 8U == mine.lap + 1;
  };
  const auto answered = [&] {
    if (look()) return true;
    call_host<exec::cpu::lend_thread>(host_);
    return look();  // the thread may have done it itself
  };
  const status waited = poll_until(answered, by);
  call_host<exec::cpu::end_lending>(host_);
  std::uint64_t value = 0;
  if (waited == status::ok) {
    value = system_atomic<std::uint64_t>(replies_[mine.slot].value).load(order::relaxed);
  }
  device_atomic<std::uint64_t>(seats_[mine.slot])
      .store(2 * (mine.lap + 1) + (waited == status::ok ? 0 : 1), order::release);  // is_free()
  if (waited != status::ok) {
    own_ = 0;
    return {waited, 0};
  }
  return {static_cast<status>(seen & 0xffU), value};
}

CW_FN inline proxy_queue::answer proxy_queue::issue_alone(const proxy_command& c,
                                                          publish how) noexcept {
  if (entries_ == nullptr && rdma_ == nullptr) return {status::unreachable, 0};
  held_slot mine{};
  const bool traced = limits_.trace != nullptr;
  const std::uint64_t began = traced ? trace_ticks() : 0;
  const std::uint64_t place = traced ? reserve(*limits_.trace) : 0;
  const answer a = issue_at(mine, c, how);
  if (!traced) return a;
  trace_record r;
  r.begin = began;
  r.end = trace_ticks();
  r.bytes = bytes_of(c);
  r.id = trace_id(index_, (mine.lap << shift_) + mine.slot);
  r.pe = c.pe;
  r.block = trace_block();
  r.waited_ns = mine.waited_ns;
  r.kind = trace_kind::command;
  r.what = static_cast<std::uint8_t>(call_of(c));
  r.outcome = static_cast<std::uint8_t>(a.outcome);
  device::write(*limits_.trace, place, r);
  return a;
}

CW_FN inline proxy_queue::answer proxy_queue::issue_at(held_slot& mine, const proxy_command& c,
                                                       publish how) noexcept {
  if (rdma_ != nullptr) {
    const impl::rdma_answer a = impl::perform_by_rdma(rdma_, index_, c);
    return {a.outcome, a.value};
  }
  deadline by(limits_);
  by.blame(c.pe);
  by.do_not_trace();
  if (const status s = take_slot(mine, by); s != status::ok) return {s, 0};
  write(c, mine, how);
  if ((c.flags & proxy_command::wants_reply) != 0) return wait_reply(mine, by);
  device_atomic<std::uint64_t>(seats_[mine.slot])
      .store(2 * (mine.lap + 1), order::release);  // pairs with is_free()
  call_host<exec::cpu::call_proxy>(host_, index_);
  return {status::ok, 0};
}

template <group G>
CW_FN inline proxy_queue::answer proxy_queue::issue(const G& g, const proxy_command& c,
                                                    publish how) noexcept {
  g.sync();  // what all of them wrote and asked comes before
  return leader_of(g, [&] { return issue_alone(c, how); });
}

// ---- operations

template <group G>
CW_FN inline status proxy_queue::put(const G& g, int pe, remote_address to, const void* from,
                                     std::size_t bytes) noexcept {
  return put_signal(g, pe, to, from, bytes, {}, 0, signal_op::none);
}

template <group G>
CW_FN inline status proxy_queue::put_nbi(const G& g, int pe, remote_address to, const void* from,
                                         std::size_t bytes) noexcept {
  return put_signal_nbi(g, pe, to, from, bytes, {}, 0, signal_op::none);
}

template <group G>
CW_FN inline status proxy_queue::put_signal(const G& g, int pe, remote_address to, const void* from,
                                            std::size_t bytes, remote_address signal_at,
                                            std::uint64_t value, signal_op how) noexcept {
  proxy_command c = impl::make_command(proxy_op::put, pe, to);
  impl::add_signal(c, signal_at, value, how);
  if (bytes <= impl::inline_bytes) {
    g.sync();  // what the others wrote into the source
    if (g.rank() == 0) impl::take_inline(c, from, bytes);
    return issue(g, c, publish::unordered).outcome;
  }
  c.flags = proxy_command::wants_reply;
  c.local = reinterpret_cast<std::uintptr_t>(from);
  c.bytes = bytes;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::put_signal_nbi(const G& g, int pe, remote_address to,
                                                const void* from, std::size_t bytes,
                                                remote_address signal_at, std::uint64_t value,
                                                signal_op how) noexcept {
  if (bytes <= impl::inline_bytes) {
    return put_signal(g, pe, to, from, bytes, signal_at, value, how);
  }
  proxy_command c = impl::make_command(proxy_op::put, pe, to);
  impl::add_signal(c, signal_at, value, how);
  c.local = reinterpret_cast<std::uintptr_t>(from);
  c.bytes = bytes;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::put_value(const G& g, int pe, remote_address to,
                                           std::uint64_t value, int width) noexcept {
  if (width < 1 || width > 8) return status::invalid;
  proxy_command c = impl::make_command(proxy_op::put_inline, pe, to);
  c.flags = proxy_command::is_value;
  c.width = static_cast<std::uint8_t>(width);
  c.local = value;
  return issue(g, c, publish::unordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::get(const G& g, int pe, remote_address from, void* to,
                                     std::size_t bytes) noexcept {
  proxy_command c = impl::make_command(proxy_op::get, pe, from);
  c.flags = proxy_command::wants_reply;
  c.local = reinterpret_cast<std::uintptr_t>(to);
  c.bytes = bytes;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::get_nbi(const G& g, int pe, remote_address from, void* to,
                                         std::size_t bytes) noexcept {
  proxy_command c = impl::make_command(proxy_op::get, pe, from);
  c.local = reinterpret_cast<std::uintptr_t>(to);
  c.bytes = bytes;
  return issue(g, c, publish::ordered).outcome;
}

namespace impl {
CW_FN inline proxy_command make_strided(proxy_op op, int pe, remote_address at, const void* local,
                                        const proxy_queue::strides& s) noexcept {
  proxy_command c = make_command(op, pe, at);
  c.flags = proxy_command::wants_reply;
  c.local = reinterpret_cast<std::uintptr_t>(local);
  c.bytes = s.block;
  c.a = static_cast<std::uint64_t>(s.remote_stride);
  c.b = static_cast<std::uint64_t>(s.local_stride);
  c.c = s.count;
  return c;
}

CW_FN inline proxy_command make_atomic(amo op, int width, int pe, remote_address at,
                                       std::uint64_t operand, std::uint64_t comparand) noexcept {
  proxy_command c = make_command(proxy_op::atomic, pe, at);
  c.what = static_cast<std::uint8_t>(op);
  c.width = static_cast<std::uint8_t>(width == 4 || width == 8 ? width : 0);
  c.a = operand;
  c.b = comparand;
  return c;
}
}  // namespace impl

template <group G>
CW_FN inline status proxy_queue::put_strided(const G& g, int pe, remote_address to,
                                             const void* from, const strides& s) noexcept {
  return issue(g, impl::make_strided(proxy_op::put_strided, pe, to, from, s), publish::ordered)
      .outcome;
}

template <group G>
CW_FN inline status proxy_queue::get_strided(const G& g, int pe, remote_address from, void* to,
                                             const strides& s) noexcept {
  return issue(g, impl::make_strided(proxy_op::get_strided, pe, from, to, s), publish::ordered)
      .outcome;
}

template <group G>
CW_FN inline status proxy_queue::atomic(const G& g, amo op, int width, int pe, remote_address at,
                                        std::uint64_t operand, std::uint64_t comparand,
                                        std::uint64_t& old) noexcept {
  proxy_command c = impl::make_atomic(op, width, pe, at, operand, comparand);
  c.flags = proxy_command::wants_reply;
  const answer a = issue(g, c, publish::unordered);
  old = a.value;
  return a.outcome;
}

template <group G>
CW_FN inline status proxy_queue::atomic_nbi(const G& g, amo op, int width, int pe,
                                            remote_address at, std::uint64_t operand,
                                            std::uint64_t comparand) noexcept {
  return issue(g, impl::make_atomic(op, width, pe, at, operand, comparand), publish::unordered)
      .outcome;
}

template <group G>
CW_FN inline status proxy_queue::atomic_fetch_nbi(const G& g, amo op, int width, int pe,
                                                  remote_address at, std::uint64_t operand,
                                                  std::uint64_t comparand, void* old) noexcept {
  proxy_command c = impl::make_atomic(op, width, pe, at, operand, comparand);
  c.local = reinterpret_cast<std::uintptr_t>(old);
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::fence(const G& g) noexcept {
  return issue(g, impl::make_command(proxy_op::fence, -1, {}), publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::quiet(const G& g) noexcept {
  proxy_command c = impl::make_command(proxy_op::quiet, -1, {});
  c.flags = proxy_command::wants_reply;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::barrier(const G& g) noexcept {
  proxy_command c = impl::make_command(proxy_op::barrier, -1, {});
  c.flags = proxy_command::wants_reply;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::broadcast(const G& g, int root, remote_address to,
                                           remote_address from, std::size_t bytes) noexcept {
  proxy_command c = impl::make_command(proxy_op::broadcast, root, to);
  c.flags = proxy_command::wants_reply;
  c.signal_region = from.region;
  c.c = from.offset;
  c.bytes = bytes;
  return issue(g, c, publish::ordered).outcome;
}

template <group G>
CW_FN inline status proxy_queue::reduce(const G& g, reduction op, element type, remote_address to,
                                        remote_address from, std::size_t count) noexcept {
  proxy_command c = impl::make_command(proxy_op::reduce, -1, to);
  c.flags = proxy_command::wants_reply;
  c.what = static_cast<std::uint8_t>(op);
  c.width = static_cast<std::uint8_t>(type);
  c.signal_region = from.region;
  c.c = from.offset;
  c.bytes = count;
  return issue(g, c, publish::ordered).outcome;
}

}  // namespace crosswarp::device
