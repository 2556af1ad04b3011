// What a divided graph has on one rank; see graph_programs.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "crosswarp/device/graph.hpp"
#include "crosswarp/graph_programs.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/worklist.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp::graph {

inline error refuse(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

/// Empty arrays have an address, too.
template <class T>
buffer<T> on_device(device_ref d, const std::vector<T>& values) {
  buffer<T> b(d, std::max<std::size_t>(1, values.size()));
  b.write(values);
  return b;
}

template <class T>
std::size_t bytes_of(const buffer<T>& b) noexcept {
  return b.size() * sizeof(T);
}
template <class T>
std::size_t bytes_of(const std::optional<T>& b) noexcept {
  return b ? bytes_of(*b) : 0;
}

/// The warps of a rank's kernel.
inline int workers_of(const launch_shape& s) noexcept {
  constexpr int warp = device::warp_group::width;
  return s.blocks * ((s.threads + warp - 1) / warp);
}

/// Threads of a block in rounds, for which the compiler leaves enough registers.
inline constexpr int most_threads_of_rounds = 1024;
/// On a GPU: as many as a block can have, since they wait for memory most of the time; half as many
/// where vertices have few edges, for then rounds are many and short, and blocks meet sooner.
/// Blocks should be few because they meet in each round; of more than there are multiprocessors
/// each is smaller, since all have to be there at once.
inline int threads_of_rounds(bool is_dense, int blocks, int multiprocessors) noexcept {
  int threads = is_dense ? most_threads_of_rounds : most_threads_of_rounds / 2;
  const auto room = std::int64_t{multiprocessors} * most_threads_of_rounds;
  while (threads > device::warp_group::width && std::int64_t{blocks} * threads > room) threads /= 2;
  return threads;
}

/// Items that each worker may spill. A vertex may be in several when better news of it come in
/// quick succession. No list takes more than it can.
inline std::uint64_t spill_for(std::uint64_t known, int workers) noexcept {
  const std::uint64_t wanted = 4 * known / static_cast<std::uint64_t>(workers) + (1U << 16U);
  return std::min(wanted, worklist_impl::most_items);
}

/// A part of the graph, as programs read it.
struct rows {
  rows(device_ref d, const part& p)
      : begin(p.first),
        count(p.count),
        other_count(static_cast<vertex>(p.others.size())),
        offsets(on_device(d, p.offsets)),
        targets(on_device(d, p.targets)),
        lengths(on_device(d, p.lengths)),
        others(on_device(d, p.others)) {}
  /// `first`: of each of all parts, and the end; this is the `number`th.
  [[nodiscard]] device::graph::part view(const buffer<vertex>& first, int number, int all) const {
    return {offsets.data(), targets.data(), lengths.data(), others.data(), other_count,
            first.data(),   begin,          count,          number,        all};
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_of(offsets) + bytes_of(targets) + bytes_of(lengths) + bytes_of(others);
  }
  vertex begin;
  vertex count;
  vertex other_count;
  buffer<std::uint64_t> offsets;
  buffer<vertex> targets;
  buffer<weight> lengths;
  buffer<vertex> others;
};

/// What a program in rounds did on one rank.
struct rounds_work {
  std::uint64_t rounds = 0;
  std::uint64_t edges = 0;
};

/// What programs in rounds need beside the graph; made when first asked for.
struct rounds_memory;
std::size_t bytes_of(const rounds_memory& m) noexcept;
/// Of the graph itself, beside the rank's rows.
std::size_t graph_bytes_of(const rounds_memory& m) noexcept;

struct divided::state {
  state(world& on, const csr& whole, const partition& how, const divided_options& o,
        std::vector<vertex> before = {});

  /// Own vertices, and others' that edges lead to.
  [[nodiscard]] std::size_t known() const { return mine.count + mine.others.size(); }
  [[nodiscard]] int workers() const { return workers_of(shape); }
  /// Parts that rounds divide this rank's vertices into: one for each thread of a CPU, as if it
  /// were a rank. Threads that wait for each other within a block share one, as on a GPU.
  [[nodiscard]] int parts() const {
    return device.kind() == device_kind::cpu && shape.threads == 1 ? shape.blocks : 1;
  }
  /// The rank's rows are made when they are first asked for: rounds may have smaller parts instead.
  [[nodiscard]] const rows& whole() {
    if (!all_rows) all_rows.emplace(device, mine);
    return *all_rows;
  }
  [[nodiscard]] device::graph::part view() { return whole().view(first, w.rank(), w.size()); }
  /// Throws error(not_supported) when rounds were asked for and cannot be.
  [[nodiscard]] bool in_rounds() const;
  /// Whether rounds have room for a path through all vertices, along edges as long as the longest;
  /// throws like in_rounds().
  [[nodiscard]] bool paths_fit() const;

  // ---- a run: begin(), launches, end()

  using clock = std::chrono::steady_clock;
  /// All ranks have called.
  void begin() {
    w.barrier();
    began = clock::now();
    in_kernels = {};
  }
  /// Runs a kernel whose last argument is where each block puts its outcome; the blocks of all
  /// shapes are as many.
  template <class Kernel, class... Args>
  void run(const char* what, const launch_shape& of, Kernel kernel, const Args&... args) {
    const auto before = clock::now();
    launch(w, of, kernel, args..., outcomes.data());
    w.stream().sync();
    ended = clock::now();
    in_kernels += ended - before;
    for (const status s : outcomes.read()) {
      if (s != status::ok) fail(what, s);
    }
  }
  /// Throws what broke the world, or what was wrong.
  [[noreturn]] void fail(const char* what, status s) const;
  run_report end(const device::worklist_counts& counts, const rounds_work& work);

  run_report bfs_in_rounds(vertex source);
  run_report sssp_in_rounds(vertex source);
  run_report cc_in_rounds();
  run_report pr_in_rounds(const pagerank_options& o);

  // ---- vertices, as the caller numbers them

  /// Throws error(invalid_argument) for a source that is no vertex.
  [[nodiscard]] vertex source_of(vertex given) const;
  /// By vertex here to by vertex there.
  template <class T>
  [[nodiscard]] std::vector<T> as_given(std::vector<T> here) const {
    if (was.empty()) return here;
    std::vector<T> given(here.size());
    for (std::size_t v = 0; v < here.size(); ++v) given[was[v]] = here[v];
    return given;
  }

  // ---- results

  /// Each own vertex's value, from all ranks.
  template <class T>
  std::vector<T> gather(const buffer<T>& from) {
    const std::vector<T> own = from.read();
    std::vector<T> all;
    for (const auto& bytes : w.allgather(std::as_bytes(std::span(own).first(mine.count)))) {
      const std::size_t before = all.size();
      all.resize(before + bytes.size() / sizeof(T));
      if (!bytes.empty()) std::memcpy(all.data() + before, bytes.data(), bytes.size());
    }
    return all;
  }

  world& w;
  csr g;
  partition p;
  std::vector<vertex> was;  ///< by vertex: its number before it was renumbered; empty: the same
  divided_options options;
  int multiprocessors;  ///< that are this rank's
  launch_shape shape;   ///< of worklists
  launch_shape shape_of_rounds;
  part mine;
  device_ref device;
  std::optional<rows> all_rows;
  buffer<vertex> first;
  buffer<status> outcomes;
  distance delta;  ///< of worklists
  /// What a GPU pays for is rounds more than edges: with a larger step there are fewer of them.
  distance delta_of_rounds;
  weight longest;  ///< of edges

  // Of own vertices; each is made when it is first asked for.
  std::optional<buffer<vertex>> parents;
  std::optional<buffer<std::uint64_t>> distances;
  std::optional<buffer<vertex>> labels;
  std::optional<buffer<double>> ranks;

  struct lists;  ///< worklists, and what is known of vertices
  std::shared_ptr<lists> worklists;
  std::shared_ptr<rounds_memory> rounds;

  clock::time_point began;
  clock::time_point ended;
  clock::duration in_kernels{};
};

}  // namespace crosswarp::graph
