// Telling another rank that something happened: a word that only grows.
//
// Write remote, poll local: the word lives with the one who waits. One writer per word, each on
// its own 128-byte line. Values are compared by signed difference, so a counter may wrap.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "crosswarp/device/group.hpp"

namespace crosswarp::device {

/// True when a counter that shows `seen` has come to `want`, also across a wrap. The two may be
/// at most half of the range apart.
template <std::unsigned_integral T>
[[nodiscard]] CW_FN constexpr bool reached(T seen, T want) noexcept {
  return static_cast<std::make_signed_t<T>>(static_cast<T>(seen - want)) >= 0;
}

/// Storage of one signal: alone on its line. Zero at the start.
struct alignas(line_bytes) signal_line {
  std::uint64_t word;
};

/// A signal between ranks. Plain view; the storage belongs to the one who waits.
/// `reach`: system, or device when all who use it are kernels of one process on one GPU; what the
/// memory's peer_table says. On a GPU a release within the device takes half of the time.
class signal {
 public:
  CW_FN explicit signal(std::uint64_t& word, scope reach = scope::system) noexcept
      : word_(&word), reach_(reach) {}
  CW_FN explicit signal(signal_line& line, scope reach = scope::system) noexcept
      : signal(line.word, reach) {}

  /// Raises the signal to `value`.
  /// Visibility: everything the calling thread did before is visible to a wait that sees `value`.
  CW_FN void set(std::uint64_t value) const noexcept {
    within(reach_, *word_, [&](auto w) { w.store(value, order::release); });  // pairs with read()
  }

  /// Adds to the signal: for several writers. A wait that sees the sum sees what all of them did
  /// before: each add continues the release of those it follows. Not together with set().
  CW_FN void add(std::uint64_t amount) const noexcept {
    // pairs with read()
    within(reach_, *word_, [&](auto w) { w.fetch_add(amount, order::release); });
  }

  /// Raises the signal and orders nothing: for news that carry no data. On a GPU it is faster by
  /// the fence that set() needs.
  CW_FN void set_unordered(std::uint64_t value) const noexcept {
    system_atomic<std::uint64_t>(*word_).store(value, order::relaxed);
  }

  [[nodiscard]] CW_FN std::uint64_t read() const noexcept {
    return system_atomic<std::uint64_t>(*word_).load(order::acquire);  // pairs with set(), add()
  }

  /// Waits until the signal has reached `want`.
  /// Callers: one thread.      Fails: timeout, peer_lost, aborted.
  [[nodiscard]] CW_FN status wait(std::uint64_t want, const wait_limits& limits) const noexcept {
    deadline by(limits);
    return wait(want, by);
  }
  [[nodiscard]] CW_FN status wait(std::uint64_t want, deadline& by) const noexcept {
    std::uint64_t seen = 0;
    return wait(want, by, seen);
  }
  /// The same; `seen`: what it had come to.
  [[nodiscard]] CW_FN status wait(std::uint64_t want, deadline& by,
                                  std::uint64_t& seen) const noexcept {
    // The look that succeeds is made again with acquire: looking with it all the time is slower on
    // a GPU, whose first cache each acquire empties. Next to each other the compiler makes one of
    // the two.
    const system_atomic<std::uint64_t> word(*word_);
    return poll_until(
        [&] {
          if (!reached(word.load(order::relaxed), want)) return false;
          seen = read();
          return true;
        },
        by);
  }
  /// Waits until the signal has reached `want` and orders nothing; goes with set_unordered().
  [[nodiscard]] CW_FN status wait_unordered(std::uint64_t want,
                                            const wait_limits& limits) const noexcept {
    const system_atomic<std::uint64_t> word(*word_);
    return poll_until([&] { return reached(word.load(order::relaxed), want); }, limits);
  }

 private:
  std::uint64_t* word_;
  scope reach_;
};

/// Raises `s` for a group.
/// Visibility: everything any thread of `g` did before is visible to a wait that sees `value`.
/// Callers:    all threads of `g`, same arguments.
template <group G>
CW_FN inline void notify(const G& g, const signal& s, std::uint64_t value) noexcept {
  g.sync();
  if (g.rank() == 0) s.set(value);
}

/// Waits for `s` as a group.
/// Visibility: everything before the matching set() is visible to every thread of `g`.
/// Callers:    all threads of `g`, same arguments.      Fails: timeout, peer_lost, aborted.
template <group G>
[[nodiscard]] CW_FN inline status wait(const G& g, const signal& s, std::uint64_t want,
                                       const wait_limits& limits) noexcept {
  return leader_of(g, [&] { return s.wait(want, limits); });
}

}  // namespace crosswarp::device
