#include <algorithm>
#include <cstring>
#include <optional>

#include "crosswarp/device/graph.hpp"
#include "crosswarp/graph_programs.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/worklist.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp::graph {
namespace {

namespace dev = crosswarp::device;

template <class Program>
struct run_program {
  CW_FN void operator()(const dev::kernel_context& ctx,
                        const dev::worklist<typename Program::item>& list, const Program& program,
                        status* out) const {
    const status s = dev::agree(ctx.block(), list.run(ctx, program));
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }
};

/// Joins what own edges join, then runs the list; see device::graph::components.
struct run_components {
  using program = dev::graph::components;
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::worklist<program::item>& list,
                        const program& c, status* out) const {
    const vertex n = c.graph.count;
    status s = meet(ctx, n, [&](vertex v) { c.above[v] = v; });
    if (s == status::ok) s = meet(ctx, n, [&](vertex v) { join_row(c, v); });
    if (s == status::ok) s = meet(ctx, n, [&](vertex v) { flatten(c, v); });
    if (s == status::ok) s = meet(ctx, c.border_count, [&](std::uint64_t i) { enlist(c, i); });
    if (s == status::ok) s = list.run(ctx, c);
    // All labels of roots are final on all ranks, and nobody writes them any more.
    if (s == status::ok) {
      for_each(ctx, n, [&](vertex v) {
        if (c.above[v] != v) c.labels[v] = c.labels[c.above[v]];
      });
    }
    s = dev::agree(ctx.block(), s);
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }

 private:
  /// f of each number below n, by all threads of the grid.
  template <class Number, class F>
  CW_FN static void for_each(const dev::kernel_context& ctx, Number n, const F& f) noexcept {
    const auto grid = ctx.grid();
    for (auto i = static_cast<std::uint64_t>(grid.rank()); i < n;
         i += static_cast<std::uint64_t>(grid.size())) {
      f(static_cast<Number>(i));
    }
  }
  /// The same, and all wait for each other.
  template <class Number, class F>
  CW_FN static status meet(const dev::kernel_context& ctx, Number n, const F& f) noexcept {
    for_each(ctx, n, f);
    return ctx.grid().sync();
  }
  CW_FN static void join_row(const program& c, vertex v) noexcept {
    for (std::uint64_t i = c.graph.offsets[v]; i < c.graph.offsets[v + 1]; ++i) {
      const vertex t = c.graph.targets[i];
      if (t < v) c.join(v, t);  // the other direction is there, too
    }
  }
  CW_FN static void flatten(const program& c, vertex v) noexcept {
    const vertex r = c.root(v);
    dev::device_atomic<vertex>(c.above[v]).store(r, dev::order::relaxed);
    c.labels[v] = c.graph.begin + r;
  }
  CW_FN static void enlist(const program& c, std::uint64_t border) noexcept {
    const vertex r = dev::graph::impl::look(c.above[c.border_from[border]]);
    // Relaxed: the lists are read behind the grid's barrier.
    c.next[border] =
        dev::device_atomic<std::uint64_t>(c.heads[r]).exchange(border + 1, dev::order::relaxed);
  }
};

error refuse(const char* call, const std::string& why) {
  return {errc::invalid_argument, call, why};
}

launch_shape shape_of(const world& w, const divided_options& o) {
  if (o.blocks < 0 || o.threads < 0) throw refuse("divided", "blocks and threads: not negative");
  launch_shape shape{.blocks = o.blocks, .threads = o.threads};
  const bool gpu = w.options().device.kind() == device_kind::cuda;
  if (shape.threads == 0) shape.threads = gpu ? 128 : 1;
  if (shape.blocks == 0) {
    shape.blocks = 1;
    for (const device_info& d : devices()) {
      if (gpu && d.device == w.options().device) {
        shape.blocks = std::max(1, d.multiprocessors / w.size());
      }
    }
  }
  return shape;
}

distance default_delta(const csr& g) {
  distance sum = 0;
  for (const weight l : g.lengths()) sum += l;
  return std::max<distance>(1, g.edges() == 0 ? 1 : 4 * sum / g.edges());
}

const partition& checked(const partition& p, const world& w, const csr& g) {
  if (p.first.empty() || p.ranks() != w.size() || p.first.front() != 0 ||
      p.first.back() != g.vertices() || !std::is_sorted(p.first.begin(), p.first.end())) {
    throw refuse("divided", "the partition is not one of " + std::to_string(g.vertices()) +
                                " vertices among " + std::to_string(w.size()) + " ranks");
  }
  return p;
}

template <class T>
const buffer<T>& of_a_run(const std::optional<buffer<T>>& result, const char* program) {
  if (!result) throw refuse(program, "it has not been run, so there is no result");
  return *result;
}

/// Empty arrays have an address, too.
template <class T>
buffer<T> on_device(device_ref d, const std::vector<T>& values) {
  buffer<T> b(d, std::max<std::size_t>(1, values.size()));
  b.write(values);
  return b;
}

}  // namespace

struct divided::state {
  state(world& on, const csr& whole, const partition& how, const divided_options& o)
      : w(on),
        g(whole),
        p(checked(how, on, whole)),
        options(o),
        shape(shape_of(on, o)),
        mine(take_part(whole, how, on.rank())),
        device(on.options().device),
        offsets(on_device(device, mine.offsets)),
        targets(on_device(device, mine.targets)),
        lengths(on_device(device, mine.lengths)),
        others(on_device(device, mine.others)),
        first(on_device(device, how.first)),
        words(device, std::max<std::size_t>(1, known())),
        outcomes(device, static_cast<std::size_t>(shape.blocks)) {}

  /// Edges that lead to others' vertices, and where they begin.
  struct borders {
    borders(device_ref d, const part& p) : borders(d, p, indices(p)) {}
    borders(device_ref d, const part& p, const std::vector<std::uint64_t>& all)
        : count(all.size()), edges(on_device(d, all)), from(on_device(d, sources_of(p, all))) {}
    static std::vector<std::uint64_t> indices(const part& p) {
      std::vector<std::uint64_t> all;
      for (std::uint64_t i = 0; i < p.targets.size(); ++i) {
        if (p.targets[i] >= p.count) all.push_back(i);
      }
      return all;
    }
    static std::vector<vertex> sources_of(const part& p, const std::vector<std::uint64_t>& edges) {
      std::vector<vertex> from;
      vertex v = 0;
      for (const std::uint64_t e : edges) {
        while (p.offsets[v + 1] <= e) ++v;
        from.push_back(v);
      }
      return from;
    }
    std::uint64_t count;
    buffer<std::uint64_t> edges;
    buffer<vertex> from;
  };

  /// Own vertices, and others' that edges lead to.
  [[nodiscard]] std::size_t known() const { return mine.count + mine.others.size(); }
  [[nodiscard]] dev::graph::part view() const {
    return {offsets.data(), targets.data(), lengths.data(), others.data(), first.data(),
            mine.first,     mine.count,     w.rank(),       w.size()};
  }

  [[nodiscard]] worklist_options list_options() const {
    worklist_options o;
    o.workers = shape.blocks * ((shape.threads + 31) / 32);
    o.queue = options.queue;
    if (o.queue == 0) o.queue = device.kind() == device_kind::cuda ? 256 : 4096;
    // A vertex may be in several items when better news of it come in quick succession.
    o.spill = 4 * known() / static_cast<std::size_t>(o.workers) + (1U << 16U);
    o.park = o.spill;
    return o;
  }

  template <class Kernel, class Program>
  run_report run(const char* what, const worklist_options& o, Kernel kernel,
                 const Program& program) {
    worklist<typename Program::item> list(w, o);
    const auto list_view = list.device();
    w.barrier();
    const auto began = std::chrono::steady_clock::now();
    launch(w, shape, kernel, list_view, program, outcomes.data());
    w.stream().sync();
    const auto took = std::chrono::steady_clock::now() - began;
    for (const status s : outcomes.read()) {
      if (s != status::ok) throw error(errc::timeout, what, to_string(s));
    }
    return together(took, list.counts());
  }

  run_report together(std::chrono::nanoseconds took, const dev::worklist_counts& counts) {
    struct answer {
      std::int64_t ns;
      dev::worklist_counts items;
    };
    run_report all;
    for (const answer& a : w.allgather(answer{took.count(), counts})) {
      all.took = std::max(all.took, std::chrono::nanoseconds(a.ns));
      all.items.made += a.items.made;
      all.items.done += a.items.done;
      all.items.stolen += a.items.stolen;
      all.items.spilled += a.items.spilled;
      all.items.parked += a.items.parked;
      all.items.forwarded += a.items.forwarded;
      all.items.epochs += a.items.epochs;
    }
    return all;
  }

  void check_source(vertex source) const {
    if (source >= g.vertices()) {
      throw refuse("source", std::to_string(source) + " in a graph of " +
                                 std::to_string(g.vertices()) + " vertices");
    }
  }
  void forget() { words.write(std::vector<std::uint64_t>(words.size(), ~std::uint64_t{0})); }

  /// f of each own vertex's value, from all ranks.
  template <class To, class From, class F>
  std::vector<To> gather(const buffer<From>& from, const F& f) {
    const std::vector<From> own = from.read();
    std::vector<To> part;
    for (vertex v = 0; v < mine.count; ++v) part.push_back(f(own[v]));
    std::vector<To> all;
    for (const auto& bytes : w.allgather(std::as_bytes(std::span(part)))) {
      const std::size_t before = all.size();
      all.resize(before + bytes.size() / sizeof(To));
      if (!bytes.empty()) std::memcpy(all.data() + before, bytes.data(), bytes.size());
    }
    return all;
  }

  world& w;
  csr g;
  partition p;
  divided_options options;
  launch_shape shape;
  part mine;
  device_ref device;
  buffer<std::uint64_t> offsets;
  buffer<vertex> targets;
  buffer<weight> lengths;
  buffer<vertex> others;
  buffer<vertex> first;
  buffer<std::uint64_t> words;  ///< what is known of vertices: of each program its own meaning
  buffer<status> outcomes;
  std::optional<borders> edges_out;  ///< made when first asked for
  std::optional<buffer<vertex>> component_labels;
  std::optional<buffer<double>> page_ranks;
};

divided::divided(world& w, const csr& g, const divided_options& o)
    : divided(w, g, edge_balanced(g, w.size()), o) {}
divided::divided(world& w, const csr& g, const partition& p, const divided_options& o)
    : state_(std::make_unique<state>(w, g, p, o)) {}
divided::~divided() = default;
divided::divided(divided&&) noexcept = default;

run_report divided::bfs(vertex source) {
  state& s = *state_;
  s.check_source(source);
  s.forget();
  return s.run("bfs", s.list_options(), run_program<dev::graph::bfs>{},
               dev::graph::bfs{s.view(), s.words.data(), source});
}

run_report divided::sssp(vertex source) {
  state& s = *state_;
  s.check_source(source);
  if (!s.g.weighted() && s.g.edges() > 0) {
    throw refuse("sssp", "the graph has no lengths; with_lengths() draws some");
  }
  s.forget();
  worklist_options o = s.list_options();
  o.step = s.options.delta == 0 ? default_delta(s.g) : s.options.delta;
  o.threshold = o.step;
  return s.run("sssp", o, run_program<dev::graph::sssp>{},
               dev::graph::sssp{s.view(), s.words.data(), source});
}

run_report divided::cc() {
  state& s = *state_;
  if (!s.g.symmetric()) {
    throw refuse("cc", "the graph is not symmetric: build it with build_options::symmetrise");
  }
  if (!s.edges_out) s.edges_out.emplace(s.device, s.mine);
  const state::borders& out = *s.edges_out;
  const buffer<std::uint64_t> next(s.device, out.count + 1);
  const buffer<std::uint64_t> heads(s.device, s.mine.count + std::size_t{1});
  const buffer<vertex> above(s.device, s.mine.count + std::size_t{1});
  buffer<vertex> labels(s.device, s.known() + 1);
  labels.write(std::vector<vertex>(s.known() + 1, no_vertex));
  const run_report r =
      s.run("cc", s.list_options(), run_components{},
            dev::graph::components{s.view(), above.data(), labels.data(), out.edges.data(),
                                   out.from.data(), out.count, next.data(), heads.data()});
  s.component_labels = std::move(labels);
  return r;
}

run_report divided::pr(const pagerank_options& o) {
  state& s = *state_;
  const double n = std::max<double>(1, s.g.vertices());
  // What may stay behind at all places where it is collected, and what it would have grown to.
  std::uint64_t places = 0;
  for (const std::uint64_t theirs : s.w.allgather(std::uint64_t{s.known()})) places += theirs;
  const double enough =
      o.tolerance * (1 - o.damping) / std::max<double>(1, static_cast<double>(places));
  const buffer<double> collected(s.device, s.known() + 1);
  buffer<double> ranks(s.device, s.mine.count + std::size_t{1});
  worklist_options list = s.list_options();
  list.threshold = 0;
  const run_report r = s.run("pr", list, run_program<dev::graph::pagerank>{},
                             dev::graph::pagerank{s.view(), ranks.data(), collected.data(), enough,
                                                  o.damping, (1 - o.damping) / n});
  s.page_ranks = std::move(ranks);
  return r;
}

std::vector<vertex> divided::parents() {
  return state_->gather<vertex>(state_->words,
                                [](std::uint64_t word) { return static_cast<vertex>(word); });
}
std::vector<std::uint32_t> divided::levels() {
  return state_->gather<std::uint32_t>(state_->words, dev::graph::bfs::level_of);
}
std::vector<distance> divided::distances() {
  return state_->gather<distance>(state_->words, [](std::uint64_t word) { return word; });
}
std::vector<vertex> divided::labels() {
  return state_->gather<vertex>(of_a_run(state_->component_labels, "cc"),
                                [](vertex v) { return v; });
}
std::vector<double> divided::ranks() {
  return state_->gather<double>(of_a_run(state_->page_ranks, "pr"), [](double r) { return r; });
}

std::size_t divided::graph_bytes() const noexcept {
  const part& m = state_->mine;
  return m.offsets.size() * sizeof(std::uint64_t) + m.targets.size() * sizeof(vertex) +
         m.lengths.size() * sizeof(weight) + m.others.size() * sizeof(vertex);
}
std::size_t divided::vertex_bytes() const noexcept {
  return state_->known() * sizeof(std::uint64_t);
}

}  // namespace crosswarp::graph
