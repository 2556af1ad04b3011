// Bodies of rdma_path.hpp: commands as entries.
//
// Put: a write, inline when it is small. Get: a read. Atomics: fetch-and-add and masked
// compare-and-swap. Entries to one rank are carried out in their order, so a fence has nothing to
// do but for one thing: a write may overtake a read or an atomic before it unless it is fenced, and
// so every write is while there are some.
#pragma once

#include "crosswarp/device/proxy.hpp"
#include "crosswarp/device/rdma_path.hpp"

namespace crosswarp::device::impl {

struct rdma_answer {
  status outcome = status::ok;
  std::uint64_t value = 0;
};

/// The ways of one queue.
class rdma_poster {
 public:
  CW_FN rdma_poster(const rdma_path& by, std::uint32_t queue) noexcept
      : by_(by),
        ways_(by.ways + static_cast<std::size_t>(queue) * static_cast<unsigned>(by.ranks)) {}

  [[nodiscard]] CW_FN rdma_answer perform(const proxy_command& c) const noexcept {
    switch (c.op) {
      case proxy_op::put:
      case proxy_op::put_inline:
        return {put(c)};
      case proxy_op::get:
        return {get(c, c.remote, c.local, c.bytes, wants_reply(c))};
      case proxy_op::put_strided:
      case proxy_op::get_strided:
        return {strided(c)};
      case proxy_op::atomic:
        return atomic(c);
      case proxy_op::fence:
        return {};
      case proxy_op::quiet:
        return {quiet()};
      default:
        return {status::unsupported};
    }
  }

 private:
  static constexpr std::uint32_t most_bytes = 1U << 30U;  ///< of one entry

  struct target {
    status outcome = status::ok;
    rdma::remote_memory at;
  };

  [[nodiscard]] CW_FN static bool wants_reply(const proxy_command& c) noexcept {
    return (c.flags & proxy_command::wants_reply) != 0;
  }

  /// Checked here: an adapter would fail the endpoint, and with it all that others ask of the rank.
  [[nodiscard]] CW_FN target find(int pe, std::uint16_t region, std::uint64_t offset,
                                  std::uint64_t bytes) const noexcept {
    if (pe < 0 || pe >= by_.ranks || region >= rdma_path::most_regions)
      return {status::invalid, {}};
    const rdma_part& p =
        by_.parts[static_cast<std::size_t>(region) * static_cast<unsigned>(by_.ranks) +
                  static_cast<unsigned>(pe)];
    if (offset > p.bytes || bytes > p.bytes - offset) return {status::invalid, {}};
    return {status::ok, {p.base + offset, p.rkey}};
  }

  /// A rank that does not answer is lost, which the host may not know yet; one that refuses what
  /// find() allowed has heard of a lost rank before this one, and has left. What follows a failure
  /// ends like it.
  [[nodiscard]] CW_FN static status outcome_of(const rdma_way& w, status s) noexcept {
    if (s == status::ok || s == status::timeout) return s;
    const rdma::completion first = w.to.first_failure();
    if (first.outcome == status::ok) return s;
    if (first.why != rdma::syndrome::retries_exceeded &&
        first.why != rdma::syndrome::remote_access) {
      return first.outcome;
    }
    return impl::note_vain(w.to.limits(), status::peer_lost);
  }

  /// Not in line: it is long, and all commands come here.
  [[nodiscard]] CW_COLD CW_FN static status post(const rdma_way& w, rdma::request r,
                                                 bool wait) noexcept {
    const thread_group me;
    const bool fetches = r.op != rdma::operation::write;
    const device_atomic<std::uint64_t> fetched(w.state->fetches);
    r.signalled = wait;
    // Relaxed: a thread that must see what others posted has been told so by them.
    r.fenced = !fetches && !w.to.is_complete(fetched.load(order::relaxed));
    const rdma::posted p = w.to.post(me, r);
    if (p.outcome != status::ok) return outcome_of(w, p.outcome);
    if (fetches) {
      std::uint64_t seen = fetched.load(order::relaxed);
      while (seen < p.end && !fetched.compare_exchange(seen, p.end, order::relaxed)) {
      }
    }
    status s = w.to.submit(me, p);
    if (s == status::ok && wait) s = w.to.wait(me, p).outcome;
    return outcome_of(w, s);
  }

  // ---- put

  [[nodiscard]] CW_FN status put(const proxy_command& c) const noexcept {
    const bool inlined = c.op == proxy_op::put_inline;
    const std::uint64_t bytes = inlined ? c.width : c.bytes;
    const auto how = static_cast<signal_op>(c.what);
    const target to = find(c.pe, c.region, c.remote, bytes);
    const target signal =
        how == signal_op::none ? target{} : find(c.pe, c.signal_region, c.a, sizeof(std::uint64_t));
    if (to.outcome != status::ok || signal.outcome != status::ok || how > signal_op::add ||
        (how != signal_op::none && c.a % sizeof(std::uint64_t) != 0)) {
      return status::invalid;
    }
    const rdma_way& w = ways_[c.pe];
    status s = status::ok;
    if (inlined) {
      const std::uint64_t data[2] = {c.local, c.bytes};
      s = post(w, write_of(to.at, data, c.width), false);
    } else {
      // Waited for only when nothing follows: what follows ends after it.
      s = write(w, to.at, c.local, bytes, wants_reply(c) && how == signal_op::none);
    }
    if (s != status::ok || how == signal_op::none) return s;
    const bool wait = !inlined && wants_reply(c);
    return how == signal_op::set ? post(w, write_of(signal.at, &c.b, sizeof(c.b)), wait)
                                 : post(w, add_of(signal.at, c.b), wait);
  }

  [[nodiscard]] CW_FN status write(const rdma_way& w, rdma::remote_memory to, std::uint64_t from,
                                   std::uint64_t bytes, bool wait) const noexcept {
    if (bytes != 0 && bytes <= w.to.made_of().inline_bytes) {
      return post(w, write_of(to, reinterpret_cast<const void*>(from), part_of(bytes)), false);
    }
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint32_t part = part_of(bytes - done);
      rdma::request r;
      r.op = rdma::operation::write;
      r.bytes = part;
      r.local = {from + done, by_.any_key};
      r.remote = {to.address + done, to.rkey};
      done += part;
      if (const status s = post(w, r, wait && done == bytes); s != status::ok) return s;
    }
    return status::ok;
  }

  [[nodiscard]] CW_FN static std::uint32_t part_of(std::uint64_t bytes) noexcept {
    return bytes < most_bytes ? static_cast<std::uint32_t>(bytes) : most_bytes;
  }
  [[nodiscard]] CW_FN static rdma::request write_of(rdma::remote_memory to, const void* data,
                                                    std::uint32_t bytes) noexcept {
    rdma::request r;
    r.op = rdma::operation::write;
    r.bytes = bytes;
    r.inline_data = data;
    r.remote = to;
    return r;
  }

  // ---- get, strided

  [[nodiscard]] CW_FN status get(const proxy_command& c, std::uint64_t remote, std::uint64_t local,
                                 std::uint64_t bytes, bool wait) const noexcept {
    const target from = find(c.pe, c.region, remote, bytes);
    if (from.outcome != status::ok) return from.outcome;
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint32_t part = part_of(bytes - done);
      rdma::request r;
      r.op = rdma::operation::read;
      r.bytes = part;
      r.local = {local + done, by_.any_key};
      r.remote = {from.at.address + done, from.at.rkey};
      done += part;
      if (const status s = post(ways_[c.pe], r, wait && done == bytes); s != status::ok) return s;
    }
    return status::ok;
  }

  /// Whether blocks lie apart from each other, and all of them inside the rank's memory.
  [[nodiscard]] CW_FN bool good_strides(const proxy_command& c) const noexcept {
    const auto length = [](std::uint64_t stride) {
      return static_cast<std::int64_t>(stride) < 0 ? 0 - stride : stride;
    };
    const std::uint64_t last = c.c - 1;
    if (find(c.pe, c.region, c.remote, c.bytes).outcome != status::ok) return false;
    if (last == 0) return true;
    if (length(c.a) < c.bytes || length(c.b) < c.bytes) return false;
    // So many that it goes round would not fit, however they lie.
    const std::uint64_t all = ~std::uint64_t{0} >> 1U;
    return last <= all / length(c.a) && last <= all / length(c.b) &&
           find(c.pe, c.region, c.remote + last * c.a, c.bytes).outcome == status::ok;
  }

  /// Block by block; the last is waited for.
  [[nodiscard]] CW_FN status strided(const proxy_command& c) const noexcept {
    if (c.c == 0 || c.bytes == 0) return find(c.pe, c.region, 0, 0).outcome;
    if (!good_strides(c)) return status::invalid;
    const std::uint64_t last = c.c - 1;
    for (std::uint64_t i = 0; i < c.c; ++i) {
      const std::uint64_t remote = c.remote + i * c.a;
      const std::uint64_t local = c.local + i * c.b;
      const target at = find(c.pe, c.region, remote, c.bytes);
      status s = at.outcome;
      if (s == status::ok) {
        s = c.op == proxy_op::get_strided ? get(c, remote, local, c.bytes, i == last)
                                          : write(ways_[c.pe], at.at, local, c.bytes, i == last);
      }
      if (s != status::ok) return s;
    }
    return status::ok;
  }

  // ---- atomics

  /// What is added when nobody wants to know what was there: results of all of them go to one
  /// place.
  [[nodiscard]] CW_FN rdma::request add_of(rdma::remote_memory at,
                                           std::uint64_t value) const noexcept {
    rdma::request r;
    r.op = rdma::operation::fetch_add;
    r.operand = value;
    r.remote = at;
    r.local = nowhere();
    return r;
  }
  [[nodiscard]] CW_FN rdma::local_memory nowhere() const noexcept {
    return {reinterpret_cast<std::uintptr_t>(&by_.landings[by_.landing_count].value),
            by_.landing_key};
  }

  /// False when there is no such operation.
  [[nodiscard]] CW_FN static bool make_atomic(const proxy_command& c, rdma::request& r) noexcept {
    const std::uint64_t all = ~std::uint64_t{0};
    r.width = c.width;
    r.op = rdma::operation::compare_swap;
    r.masked = true;
    r.operand = c.a;
    switch (static_cast<amo>(c.what)) {
      case amo::fetch:
        r.op = rdma::operation::fetch_add;
        r.masked = false;
        r.operand = 0;
        return true;
      case amo::add:
        r.op = rdma::operation::fetch_add;
        r.masked = false;
        return true;
      case amo::bit_xor:  // each bit is a field of its own
        r.op = rdma::operation::fetch_add;
        r.mask = all;
        return true;
      case amo::set:
      case amo::swap:
        r.mask = all;
        return true;
      case amo::bit_or:
        r.operand = all;
        r.mask = c.a;
        return true;
      case amo::bit_and:
        r.operand = 0;
        r.mask = ~c.a;
        return true;
      case amo::compare_swap:
        r.masked = false;
        r.comparand = c.b;
        return true;
    }
    return false;
  }

  [[nodiscard]] CW_FN rdma_answer atomic(const proxy_command& c) const noexcept {
    rdma::request r;
    const target at = find(c.pe, c.region, c.remote, c.width);
    if (at.outcome != status::ok || (c.width != 4 && c.width != 8) || c.remote % c.width != 0 ||
        !make_atomic(c, r)) {
      return {status::invalid};
    }
    r.remote = at.at;
    const rdma_way& w = ways_[c.pe];
    if (!wants_reply(c) && c.local == 0) {
      r.local = nowhere();
      return {post(w, r, false)};
    }
    if (!wants_reply(c) && c.width == 8) {
      r.local = {c.local, by_.any_key};
      return {post(w, r, false)};
    }
    const rdma_answer a = fetch(w, r);
    // An adapter leaves 4 bytes in its own order, so they are waited for.
    if (!wants_reply(c) && a.outcome == status::ok) {
      *reinterpret_cast<std::uint32_t*>(c.local) = static_cast<std::uint32_t>(a.value);
    }
    return a;
  }

  [[nodiscard]] CW_FN rdma_answer fetch(const rdma_way& w, rdma::request& r) const noexcept {
    rdma_landing* mine = nullptr;
    std::uint32_t next = 0;
    const status got = poll_until(
        [&] {
          for (std::uint32_t i = 0; i < by_.landing_count && mine == nullptr; ++i) {
            rdma_landing& l = by_.landings[next++ % by_.landing_count];
            const device_atomic<std::uint64_t> held(l.held);
            if (held.load(order::relaxed) == 0 && held.exchange(1, order::acquire) == 0) {
              mine = &l;  // pairs with the release below: its value has been read
            }
          }
          return mine != nullptr;
        },
        w.to.made_of().limits);
    if (got != status::ok) return {got};
    r.local = {reinterpret_cast<std::uintptr_t>(&mine->value), by_.landing_key};
    rdma_answer a{post(w, r, true)};
    if (a.outcome == status::ok) {
      a.value = r.width == 4
                    ? rdma::endpoint::fetched(reinterpret_cast<std::uint32_t*>(&mine->value))
                    : rdma::endpoint::fetched(&mine->value);
    }
    // After a deadline the value may still come: nobody else may wait for one there.
    if (a.outcome != status::timeout) {
      device_atomic<std::uint64_t>(mine->held).store(0, order::release);  // pairs with the above
    }
    return a;
  }

  // ---- order

  /// Tells of a failure once: what failed after that has told its caller.
  [[nodiscard]] CW_FN status quiet() const noexcept {
    const thread_group me;
    status worst = status::ok;
    for (int pe = 0; pe < by_.ranks; ++pe) {
      const rdma_way& w = ways_[pe];
      status s = outcome_of(w, w.to.quiet(me).outcome);
      // Relaxed: it orders nothing.
      if (w.to.first_failure().outcome != status::ok &&
          device_atomic<std::uint64_t>(w.state->told).exchange(1, order::relaxed) != 0) {
        s = status::ok;
      }
      if (static_cast<int>(s) > static_cast<int>(worst)) worst = s;
    }
    return worst;
  }

  const rdma_path& by_;
  const rdma_way* ways_;
};

CW_FN inline void count_by_rdma(const rdma_path& by, std::uint32_t queue, const proxy_command& c,
                                status outcome) noexcept {
  rdma_counts& n = by.counts[queue * proxy_calls + static_cast<std::size_t>(call_of(c))];
  // Relaxed: read when kernels have ended, or for people.
  const auto add = [](std::uint64_t& to, std::uint64_t value) {
    device_atomic<std::uint64_t>(to).fetch_add(value, order::relaxed);
  };
  add(n.calls, 1);
  if (outcome != status::ok) {
    add(n.failures, 1);
  } else if (bytes_of(c) != 0) {
    add(n.bytes, bytes_of(c));
  }
}

/// Carries out a command of queue `queue`, and waits for its end when it wants a reply. The command
/// by value: so it need not be in memory where it goes to the host.
/// Fails: as proxy_queue says.
CW_COLD CW_FN inline rdma_answer perform_by_rdma(const rdma_path* by, std::uint32_t queue,
                                                 proxy_command c) noexcept {
  const rdma_answer a = rdma_poster(*by, queue).perform(c);
  count_by_rdma(*by, queue, c, a.outcome);
  return a;
}

}  // namespace crosswarp::device::impl
