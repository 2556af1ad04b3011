// What ranks that disagree have called, so that check() can say it. Digests tell that calls differ,
// and not in what: a group that has found out leaves a description of its call where the other
// ranks can read it. All of it happens after a failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "crosswarp/coll.hpp"
#include "crosswarp/device/exec_context.hpp"
#include "crosswarp/device/world.hpp"

namespace crosswarp::coll_impl {

/// The host's calls by name.
enum class collective : std::uint8_t {
  none,
  barrier,
  all_reduce,
  reduce,
  reduce_scatter,
  reduce_scatter_v,
  all_gather,
  all_gather_v,
  broadcast,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  send,
  receive,
  rms_norm,
  quantise_e4m3,
  quantise_e5m2,
};

/// A call in words that atomics can carry.
struct description {
  std::uint64_t head = 0;  ///< 0: none
  std::uint64_t count = 0;
  std::uint64_t hidden = 0;  ///< of rows, of which count is the number
  std::uint64_t out = 0;     ///< places in shared memory
  std::uint64_t in = 0;

  /// Where the parts of `head` are.
  static constexpr unsigned type_at = 8;
  static constexpr unsigned op_at = 16;
  static constexpr unsigned how_at = 24;
  static constexpr unsigned shared_at = 31;
  static constexpr unsigned root_at = 32;

  CW_FN static description of(collective what, std::size_t count, data_type type = {},
                              coll_op op = {}, coll_algorithm how = {}, int root = 0) noexcept {
    description d;
    d.head = static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(type) << type_at |
             static_cast<std::uint64_t>(op) << op_at | static_cast<std::uint64_t>(how) << how_at |
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << root_at;
    d.count = count;
    return d;
  }
  /// Of a call that uses the caller's memory in place, if it does.
  CW_FN void use(const device::symmetric<std::byte>& to,
                 const device::symmetric<std::byte>& from) noexcept {
    if (from.size() == 0) return;
    head |= std::uint64_t{1} << shared_at;
    out = to.remote().offset;
    in = from.remote().offset;
  }
};

/// A rank's own, in its symmetric memory. Written once, as its communicator has failed then.
struct alignas(device::line_bytes) notice {
  description said;       ///< head is written last
  std::uint32_t claimed;  ///< of its groups one writes it
};

/// How a communicator's calls have ended, in pinned memory.
struct outcome {
  std::int32_t worst = 0;  ///< the gravest status of all
  // Of the call that was found to differ; complete when the stream is.
  int who = -1;  ///< the rank that disagrees
  description mine;
  description theirs;  ///< none when it could not be had
  // The host's, for who finds out.
  std::byte* failed = nullptr;  ///< the fault word of channel 0
  std::size_t channel_bytes = 0;
  device::symmetric<notice> notices;
  device::wait_limits limits;
};

/// How long to wait for another rank's description. Whoever disagrees finds out at about the same
/// time, unless it waits for one more rank: then that is not worth waiting for.
constexpr std::uint64_t patience_ns = 100'000'000;

/// Tells the others what this rank called, and gets what the rank that disagrees did. `with`: of a
/// message, the other rank; if another one disagrees, this is not the call to tell of.
CW_COLD CW_FN inline void compare(outcome* o, description mine, int channel, int with) noexcept {
  std::byte* const word = o->failed + static_cast<std::size_t>(channel) * o->channel_bytes;
  // Relaxed: it has been seen by this group, or is the group's own.
  const int who =
      fault_rank(device::device_atomic<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(word))
                     .load(device::order::relaxed));
  if (who < 0 || (with >= 0 && who != with)) return;
  notice& own = *o->notices.local();
  // Relaxed: it only says who goes on.
  if (device::device_atomic<std::uint32_t>(own.claimed).exchange(1, device::order::relaxed) != 0) {
    return;
  }
  const auto put = [](std::uint64_t& to, std::uint64_t value) {
    device::system_atomic<std::uint64_t>(to).store(value, device::order::relaxed);
  };
  const auto get = [](std::uint64_t& from) {
    return device::system_atomic<std::uint64_t>(from).load(device::order::relaxed);
  };
  put(own.said.count, mine.count);
  put(own.said.hidden, mine.hidden);
  put(own.said.out, mine.out);
  put(own.said.in, mine.in);
  // pairs with the acquire below, at the others
  device::system_atomic<std::uint64_t>(own.said.head).store(mine.head, device::order::release);
  o->who = who;
  o->mine = mine;
  notice* const there = o->notices.find(who);
  if (there == nullptr) return;
  std::uint64_t head = 0;
  const status s = device::poll_until(
      [&] {
        // pairs with the release above, at rank who
        head = device::system_atomic<std::uint64_t>(there->said.head).load(device::order::acquire);
        return head != 0;
      },
      o->limits.for_peer(who).within(patience_ns));
  if (s != status::ok) return;
  o->theirs = {head, get(there->said.count), get(there->said.hidden), get(there->said.out),
               get(there->said.in)};
}

/// One thread of each block notes what went wrong. `describe()`: the call.
template <class Describe>
CW_FN inline void note(const device::kernel_context& k, outcome* o, status s,
                       const Describe& describe, int channel, int with = -1) noexcept {
  if (k.thread_index() != 0 || s == status::ok) return;
  // Relaxed: the stream's end orders it. Any of two that fail at once may stay.
  const device::system_atomic<std::int32_t> word(o->worst);
  if (word.load(device::order::relaxed) < static_cast<std::int32_t>(s)) {
    word.store(static_cast<std::int32_t>(s), device::order::relaxed);
  }
  if (s == status::invalid) compare(o, describe(), channel, with);
}

/// "all_reduce of 1000 f32, sum, by pull".
std::string words_of(const description& d);
/// What is wrong, for people, as far as it is known. `who`: the rank that disagrees, or -1.
std::string explain(const outcome& o, int who);

}  // namespace crosswarp::coll_impl
