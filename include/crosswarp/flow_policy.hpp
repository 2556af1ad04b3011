// Where a router sends what comes in: policies, and those that know how fast the ways are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "crosswarp/device_ref.hpp"

namespace crosswarp::flow {

/// Bytes that somebody sends; they stay the sender's. `tag` is the user's: policies may read it,
/// and it arrives with every part.
struct segment {
  segment() = default;
  segment(const void* from, std::size_t length, std::uint64_t user_tag = 0) noexcept
      : data(from), bytes(length), tag(user_tag) {}
  template <class T>
  requires std::is_trivially_copyable_v<T>
  // NOLINTNEXTLINE(google-explicit-constructor): a span is a segment
  segment(std::span<T> values, std::uint64_t user_tag = 0)
  noexcept : segment(values.data(), values.size_bytes(), user_tag) {}
  /// A vector or array that outlives the send.
  template <class R>
  requires(!std::is_array_v<R>) && requires(R& r) { std::span(std::data(r), std::size(r)); }
  // NOLINTNEXTLINE(google-explicit-constructor): as a span is
  segment(R& values, std::uint64_t user_tag = 0) noexcept
      : segment(std::span(std::data(values), std::size(values)), user_tag) {}

  const void* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
};

/// What becomes of a segment that has several outputs to go to.
enum class spread : std::uint8_t {
  any,       ///< in packets, to whichever of them has a buffer free: the fast get more
  priority,  ///< the same, but the first of them that has one, always
  every,     ///< all of it to each of them
  split,     ///< in as many contiguous parts as there are outputs, the k-th to the k-th
};

struct route {
  spread how = spread::any;
  std::vector<int> outputs;
  std::size_t unit = 1;  ///< parts of a split are multiples of so many bytes, but for the last
};

/// A router's ends.
struct fan {
  int inputs = 1;
  int outputs = 1;
};

/// A value: what a router asks. Functions are called by any thread, several at once.
struct policy {
  std::string name;
  /// Where a segment of input `source` goes: some of reachable(source), at least one.
  std::function<route(const segment& s, int source, const fan& f)> choose;
  /// Everywhere that it may ever go. An output ends when all inputs that reach it have shut down.
  std::function<std::vector<int>(int source, const fan& f)> reachable;
  /// Why it is as it is, for people.
  std::string why;

  [[nodiscard]] std::string explain() const { return name + ": " + why; }
};

policy any_available();
policy priority();
policy broadcast();
/// `unit`: bytes of an element, which no part cuts.
policy scatter(std::size_t unit = 1);
/// Everything to output 0.
policy gather();
/// Input i to output i + 1, the last to 0.
policy ring();
/// Input i to output i - 1, who adds its own and goes on. Input 0 has the result: it sends to the
/// last output where the router has one more than inputs (the host, say), else it may not send.
policy one_way_reduction();
/// The same along a binomial tree: input i to output i without its lowest bit.
policy tree_reduction();
/// Of your own: `f` gives outputs for a segment and its source, of those that there are.
policy user_defined(
    std::function<std::vector<int>(const segment& s, int source, const std::vector<int>& outputs)>
        f,
    spread how = spread::any);

// ---- policies that know the ways
//
// A segment's tag is the output that it is for. A policy gives the next hop; an endpoint sends on
// what is not for itself, with the same tag, into the same router. Input i and output i are one
// endpoint.

/// GB/s from endpoint to endpoint, [from][to]; 0 where there is no way. The diagonal counts not.
using bandwidth_table = std::vector<std::vector<double>>;

/// By copies of `bytes` from each device to each other. A device that occurs twice is two
/// endpoints.
bandwidth_table measure_bandwidth(const std::vector<device_ref>& devices,
                                  std::size_t bytes = 16U << 20U);

/// Where in which machine an endpoint's host is. -1: not known, or in several.
struct machine_spot {
  int machine = 0;
  int package = -1;
  int numa = -1;
};
/// Of the calling thread, by the cores that it may run on. Without hwloc nothing is known.
machine_spot spot_here();

/// Straight to the output. Throws error(invalid_argument) when a pair has no way.
policy direct(const bandwidth_table& ways);
/// Along rings that share no way, at most so many, each as wide as it can be at its narrowest: of
/// all rings of up to 8 endpoints, of a greedy choice beyond. A segment takes the ring on which it
/// has the fewest hops left. Throws error(invalid_argument) when there is no ring.
policy multi_ring(const bandwidth_table& ways, int rings = 4);
/// Along the tree whose narrowest way is the widest. Throws error(invalid_argument) when endpoints
/// are cut off.
policy tree(const bandwidth_table& ways);
/// Of the three the one that is done first when all send equally much to all; why says how long
/// each takes.
policy by_topology(const bandwidth_table& ways, int rings = 4);
/// The same with what is known of where endpoints are: ways of one kind (within a NUMA node, a
/// package, a machine, between machines) count as the median of their kind, so that one copy that
/// was disturbed makes no route. why says what is how fast. Throws error(invalid_argument), also
/// when there is not one spot for each endpoint.
policy by_topology(const bandwidth_table& ways, const std::vector<machine_spot>& spots,
                   int rings = 4);

}  // namespace crosswarp::flow
