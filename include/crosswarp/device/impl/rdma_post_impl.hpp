// Bodies of rdma.hpp: posts of sends, writes, reads and atomics.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

template <class P>
CW_FN inline bool basic_endpoint<P>::fits(const request& r) const noexcept {
  return P::units(r) != 0 && r.list.count <= p_.sge &&
         (r.inline_data == nullptr || r.bytes <= p_.inline_bytes);
}
template <class P>
CW_FN inline bool basic_endpoint<P>::has_length(const request& r) noexcept {
  return r.inline_data != nullptr || r.bytes == 0 || P::is_piece(r.bytes);
}

/// Out of line: what is seldom does not make posts longer.
template <class P>
CW_COLD CW_FN impl::place basic_endpoint<P>::wait_for_room(std::uint32_t blocks) const noexcept {
  return impl::reserve(p_.send, blocks, p_.limits,
                       [&] { drain_sent(nullptr, nullptr, everything); });
}

/// `count` entries of `blocks` blocks each; either is 1. Not `sound`: none, and invalid; looked at
/// together with the room, since a branch of its own makes each post longer. Nobody else sees them
/// before publish(), or rings for them.
template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::write_entries(const G& g, std::uint32_t count,
                                                     std::uint32_t blocks, bool sound,
                                                     F&& make) const noexcept {
  g.sync();  // what all of them wrote into sources comes before
  const std::uint32_t total = count * blocks;
  const impl::place at = leader_of(g, [&]() -> impl::place {
    std::uint64_t first = 0;
    if (impl::reserve_at_once(p_.send, total, impl::is_sole<G>, sound, first)) {
      return {status::ok, first};
    }
    return wait_for_room(sound ? total : 0);
  });
  if (at.outcome != status::ok) return {at.outcome, 0, 0};
  const std::uint64_t part = p_.send.depth / 4;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    const std::uint64_t first = at.first + i;
    const std::uint64_t end = first + blocks;
    const bool at_least = ((first ^ end) & ~(part - 1)) != 0;
    P::write_entry(p_.queues, p_.send.depth, first, r, r.signalled || at_least);
    if (i > 0 || impl::is_sole<G>) {
      device_atomic<std::uint64_t>(p_.send.end_of(first)).store(end, order::relaxed);
    }
  }
  if constexpr (impl::is_sole<G>) {
    p_.send.state->ready = at.first + total;  // nobody else collects
  } else {
    g.sync();
  }
  return {status::ok, at.first, at.first + total};
}

/// What `g` wrote: its first entry ends at `end`. Who posts alone has said all.
template <class P>
template <group G>
CW_FN inline void basic_endpoint<P>::publish([[maybe_unused]] const G& g,
                                             [[maybe_unused]] const posted& p,
                                             [[maybe_unused]] std::uint64_t end) const noexcept {
  if constexpr (!impl::is_sole<G>) {
    if (p.outcome != status::ok || g.rank() != 0) return;
    // pairs with collect()
    device_atomic<std::uint64_t>(p_.send.end_of(p.index)).store(end, order::release);
  }
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post(const G& g, const request& r) const noexcept {
  const posted p = write_entry(g, r);
  publish(g, p, p.end);
  return p;
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::write_entry(const G& g, const request& r) const noexcept {
  if (!fits(r)) return {status::invalid, 0, 0};
  return write_entries(g, 1, P::blocks_of(P::units(r)), has_length(r),
                       [&](std::uint32_t) { return r; });
}

template <class P>
template <group G, class F>
CW_FN inline posted basic_endpoint<P>::post_batch(const G& g, std::uint32_t count,
                                                  F&& make) const noexcept {
  bool bad = count == 0 || count > p_.send.depth / 2;
  for (auto i = static_cast<std::uint32_t>(g.rank()); i < count && !bad;
       i += static_cast<std::uint32_t>(g.size())) {
    const request r = make(i);
    bad = !fits(r) || !has_length(r) || P::blocks_of(P::units(r)) != 1;
  }
  if (g.any(bad)) return {status::invalid, 0, 0};
  const posted p = write_entries(g, count, 1, true, make);
  publish(g, p, p.index + 1);
  return p;
}

template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write(const G& g, local_memory from, remote_memory to,
                                                  std::uint32_t bytes,
                                                  bool signalled) const noexcept {
  return post(g, {.op = operation::write,
                  .signalled = signalled,
                  .bytes = bytes,
                  .local = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_inline(const G& g, const void* from,
                                                         remote_memory to, std::uint32_t bytes,
                                                         bool signalled) const noexcept {
  return post(g, {.op = operation::write,
                  .signalled = signalled,
                  .bytes = bytes,
                  .inline_data = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_imm(const G& g, local_memory from,
                                                      remote_memory to, std::uint32_t bytes,
                                                      std::uint32_t imm,
                                                      bool signalled) const noexcept {
  return post(g, {.op = operation::write_imm,
                  .signalled = signalled,
                  .bytes = bytes,
                  .imm = imm,
                  .local = from,
                  .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_read(const G& g, local_memory to, remote_memory from,
                                                 std::uint32_t bytes,
                                                 bool signalled) const noexcept {
  return post(
      g,
      {.op = operation::read, .signalled = signalled, .bytes = bytes, .local = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_send(const G& g, local_memory from, std::uint32_t bytes,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::send, .signalled = signalled, .bytes = bytes, .local = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write(const G& g, const segment_list& from,
                                                  remote_memory to, bool signalled) const noexcept {
  return post(g, {.op = operation::write, .signalled = signalled, .list = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_write_imm(const G& g, const segment_list& from,
                                                      remote_memory to, std::uint32_t imm,
                                                      bool signalled) const noexcept {
  return post(
      g,
      {.op = operation::write_imm, .signalled = signalled, .imm = imm, .list = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_read(const G& g, const segment_list& to,
                                                 remote_memory from,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::read, .signalled = signalled, .list = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_send(const G& g, const segment_list& from,
                                                 bool signalled) const noexcept {
  return post(g, {.op = operation::send, .signalled = signalled, .list = from});
}
template <class P>
template <group G>
CW_FN inline posted basic_endpoint<P>::post_atomic(const G& g, const request& r) const noexcept {
  const bool atomic = r.op == operation::fetch_add || r.op == operation::compare_swap;
  if (!atomic) return {status::invalid, 0, 0};
  return post(g, r);
}

}  // namespace crosswarp::device::rdma
