// A rank's part of `crosswarp coll-test`: makes the calls, looks at what came, and measures.
#pragma once

#include <optional>

#include "coll_test/problem.hpp"

namespace crosswarp::tool::coll_test {

struct session_options {
  std::size_t longest = 0;  ///< bytes of the longest memory of a call
  bool symmetric = false;   ///< callers' memory is in the symmetric heap
  coll_algorithm algorithm = coll_algorithm::automatic;
  int iterations = 20;  ///< 0: nothing is measured
};

/// What came of one call, of all ranks.
struct outcome {
  double us = 0;
  std::size_t wrong = 0;
};

/// All its members are collective. All memory is there before the first call: on a GPU nobody may
/// allocate while other ranks' kernels wait.
class session {
 public:
  session(world& w, const session_options& o);

  /// Whether the call can be made so: with a result apart from the input, or over it.
  [[nodiscard]] bool has(const problem& p, bool in_place) const;
  /// Both contents are tried; then it is measured.
  outcome run(problem p, bool in_place);

 private:
  struct places {
    std::byte* out;
    std::byte* in;
  };
  [[nodiscard]] places places_of(const problem& p, bool in_place) const;
  void queue(const problem& p, const places& at);
  void queue_uneven(const problem& p, const places& at);
  std::size_t check(const problem& p, bool in_place);
  double measure(const problem& p, bool in_place);

  /// Memory of a caller.
  class memory {
   public:
    memory(world& w, std::size_t bytes, bool symmetric);
    [[nodiscard]] std::byte* data() const;

   private:
    std::optional<symmetric_buffer<std::byte>> shared_;
    std::optional<buffer<std::byte>> own_;
  };

  world& w_;
  session_options options_;
  coll all_;
  memory in_;
  memory out_;
  buffer<std::byte> source_;  // what goes in
  buffer<std::byte> result_;  // what came, taken away at once
};

}  // namespace crosswarp::tool::coll_test
