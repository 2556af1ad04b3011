// What `crosswarp coll-test` has collectives do: what goes in, and whether what came out is right.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crosswarp/coll.hpp"

namespace crosswarp::tool::coll_test {

enum class operation {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send_recv,  ///< to the next rank, from the one before, in a circle
};

enum class contents {
  integers,  ///< 1 to 15, which every type adds up without a rounding before the last
  random,    ///< floats between -1 and 1, integers of any size
};

/// One collective call, as all ranks make it.
struct problem {
  operation op = operation::all_reduce;
  data_type type = data_type::f32;
  coll_op redop = coll_op::sum;
  contents in = contents::integers;
  int ranks = 1;
  int root = 0;
  std::size_t count = 0;  ///< the call's argument; where ranks have parts, of one of them
  bool uneven = false;    ///< parts differ, by as many elements in all; the call ends in _v
};

[[nodiscard]] bool reduces(operation op) noexcept;
[[nodiscard]] bool has_root(operation op) noexcept;
/// Elements that a rank passes in and gets; those of the longer side are what a size in bytes is,
/// the same on all ranks.
[[nodiscard]] std::size_t elements_in(const problem& p, int rank) noexcept;
[[nodiscard]] std::size_t elements_out(const problem& p, int rank) noexcept;
[[nodiscard]] bool in_parts(operation op) noexcept;
/// Elements of each rank's part of the longer memory that `rank` has, and where they begin there.
/// In an all_to_all both memories are long, and alike.
[[nodiscard]] std::vector<std::size_t> counts_of(const problem& p, int rank);
[[nodiscard]] std::vector<std::size_t> places_of(const problem& p, int rank);
/// Whether this rank's result means anything.
[[nodiscard]] bool has_result(const problem& p, int rank) noexcept;
/// Bandwidth of the busiest wire by that of the algorithm, as nccl-tests has it.
[[nodiscard]] double bus_factor(const problem& p) noexcept;

/// What `rank` passes in.
[[nodiscard]] std::vector<std::byte> input_of(const problem& p, int rank);
/// How many elements of `out` are not what this rank should have got.
[[nodiscard]] std::size_t wrong_in(const problem& p, int rank, std::span<const std::byte> out);

// ---- names, as the command line has them

[[nodiscard]] const char* to_string(operation op) noexcept;
[[nodiscard]] std::string name_of(const problem& p);
[[nodiscard]] std::vector<operation> all_operations();
[[nodiscard]] std::vector<data_type> all_types();
[[nodiscard]] std::vector<coll_op> all_redops();

/// The one of `all` that has this name. Throws error(invalid_argument) that lists them.
template <class T>
[[nodiscard]] T named(const std::vector<T>& all, const std::string& name, const char* option) {
  std::string names;
  for (const T one : all) {
    if (name == to_string(one)) return one;
    names += (names.empty() ? "" : ", ") + std::string(to_string(one));
  }
  throw error(errc::invalid_argument, option, "'" + name + "' is none of " + names);
}

}  // namespace crosswarp::tool::coll_test
