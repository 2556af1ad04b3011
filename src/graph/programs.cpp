#include "graph/divided_state.hpp"
#include "world/launch.hpp"

namespace crosswarp::graph {
namespace {

namespace dev = crosswarp::device;

/// f of each number below n, by all threads of the grid.
template <class Number, class F>
CW_FN void for_each(const dev::kernel_context& ctx, Number n, const F& f) noexcept {
  const auto grid = ctx.grid();
  for (auto i = static_cast<std::uint64_t>(grid.rank()); i < n;
       i += static_cast<std::uint64_t>(grid.size())) {
    f(static_cast<Number>(i));
  }
}
/// The same, and all wait for each other.
template <class Number, class F>
CW_FN status meet(const dev::kernel_context& ctx, Number n, const F& f) noexcept {
  for_each(ctx, n, f);
  return ctx.grid().sync();
}

/// Makes a program's memory as it is at the start, runs the list, and makes its result.
template <class Program>
struct run_program {
  CW_FN void operator()(const dev::kernel_context& ctx,
                        const dev::worklist<typename Program::item>& list, const Program& program,
                        const dev::table_route& route, status* out) const {
    const dev::graph::part& g = program.graph;
    status s = meet(ctx, g.count + std::uint64_t{g.other_count},
                    [&](std::uint64_t v) { program.forget(v); });
    if (s == status::ok) s = list.run(ctx, program, route);
    if (s == status::ok) for_each(ctx, g.count, [&](vertex v) { program.conclude(v); });
    s = dev::agree(ctx.block(), s);
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }
};

/// Joins what own edges join, then runs the list; see device::graph::components.
struct run_components {
  using program = dev::graph::components;
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::worklist<program::item>& list,
                        const program& c, const dev::table_route& route, status* out) const {
    const vertex n = c.graph.count;
    status s = meet(ctx, n + std::uint64_t{c.graph.other_count}, [&](std::uint64_t v) {
      c.labels[v] = dev::graph::none;
      if (v < n) c.above[v] = static_cast<vertex>(v);
      if (v < n) c.heads[v] = 0;
    });
    if (s == status::ok) s = meet(ctx, n, [&](vertex v) { join_row(c, v); });
    if (s == status::ok) s = meet(ctx, n, [&](vertex v) { flatten(c, v); });
    if (s == status::ok) s = meet(ctx, c.border_count, [&](std::uint64_t i) { enlist(c, i); });
    if (s == status::ok) s = list.run(ctx, c, route);
    // All labels of roots are final on all ranks, and nobody writes them any more.
    if (s == status::ok) {
      for_each(ctx, n, [&](vertex v) { c.result[v] = c.labels[c.above[v]]; });
    }
    s = dev::agree(ctx.block(), s);
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }

 private:
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

/// Of each rank's device, when the grids of all that share it have to be there at once, and are as
/// large on all ranks. Processes under MPS are perhaps told of their share only, and then have less
/// than they could: too few blocks are slow, too many wait for ever.
int multiprocessors_of_a_rank(world& w) {
  int mine = 1;
  for (const device_info& d : devices()) {
    if (d.device == w.options().device) mine = d.multiprocessors;
  }
  const auto all = w.allgather(mine);
  const int least = *std::min_element(all.begin(), all.end());
  return std::max(1, least / world_impl::ranks_of_one_device(w));
}

launch_shape shape_of(const world& w, const divided_options& o, int multiprocessors) {
  if (o.blocks < 0 || o.threads < 0) throw refuse("divided", "blocks and threads: not negative");
  launch_shape shape{.blocks = o.blocks, .threads = o.threads};
  const bool gpu = w.options().device.kind() == device_kind::cuda;
  if (shape.threads == 0) shape.threads = gpu ? 128 : 1;
  // Warps share vertices evenly, so all of a block have to be equal.
  constexpr int warp = device::warp_group::width;
  if (shape.threads > warp && shape.threads % warp != 0) {
    throw refuse("divided", std::to_string(shape.threads) + " threads: at most " +
                                std::to_string(warp) + ", or a multiple of it");
  }
  if (shape.blocks == 0) shape.blocks = gpu ? multiprocessors : 1;
  return shape;
}
/// A worklist has fewer threads: each of its warps has a queue and memory of its own.
launch_shape shape_of_rounds_on(const world& w, const csr& g, const divided_options& o,
                                int multiprocessors, launch_shape shape) {
  if (w.options().device.kind() != device_kind::cuda || o.threads != 0) return shape;
  const bool is_dense = g.edges() >= 8 * std::uint64_t{g.vertices()};
  shape.threads = threads_of_rounds(is_dense, shape.blocks, multiprocessors);
  return shape;
}

/// So many mean lengths, divided by the square of the mean number of edges of a vertex: where that
/// is large, near vertices are many. Tried on the graphs of `crosswarp bench graph`.
distance default_delta(const csr& g, double lengths) {
  if (g.edges() == 0) return 1;
  double sum = 0;
  for (const weight l : g.lengths()) sum += l;
  const auto edges = static_cast<double>(g.edges());
  const double degree = edges / g.vertices();
  return static_cast<distance>(std::clamp(lengths * sum / edges / (degree * degree), 1.0, 0x1p62));
}

weight longest_of(const csr& g) {
  const auto lengths = g.lengths();
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

const partition& checked(const partition& p, const world& w, const csr& g) {
  if (p.first.empty() || p.ranks() != w.size() || p.first.front() != 0 ||
      p.first.back() != g.vertices() || !std::is_sorted(p.first.begin(), p.first.end())) {
    throw refuse("divided", "the partition is not one of " + std::to_string(g.vertices()) +
                                " vertices among " + std::to_string(w.size()) + " ranks");
  }
  return p;
}

/// Ranks write into each other's parts, so all have to agree on where these begin.
void expect_equal_parts(world& w, const csr& g, const partition& p, std::span<const vertex> was) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x100000001b3;
    hash ^= hash >> 32U;
  };
  add(g.edges());
  for (const vertex v : p.first) add(v);
  for (const vertex v : was) add(v);
  const auto all = w.allgather(hash);
  const auto other = std::find_if(all.begin(), all.end(), [&](auto h) { return h != all[0]; });
  if (other == all.end()) return;
  throw error(errc::asymmetric, "divided",
              "it has another graph, or another partition, than rank 0",
              static_cast<int>(other - all.begin()));
}

template <class T>
const buffer<T>& of_a_run(const std::optional<buffer<T>>& result, const char* program) {
  if (!result) throw refuse(program, "it has not been run, so there is no result");
  return *result;
}

/// How far each vertex is from its root.
std::vector<std::uint32_t> levels_of(const std::vector<vertex>& parents) {
  std::vector<std::uint32_t> levels(parents.size(), unreached_level);
  std::vector<vertex> way;
  for (vertex v = 0; v < parents.size(); ++v) {
    vertex at = v;
    for (; parents[at] != no_vertex && levels[at] == unreached_level; at = parents[at]) {
      way.push_back(at);
      if (parents[at] == at) break;
    }
    std::uint32_t level = levels[at] == unreached_level ? 0 : levels[at] + 1;
    for (; !way.empty(); way.pop_back()) levels[way.back()] = level++;
  }
  return levels;
}

/// A kernel's outcome, for people.
std::pair<errc, std::string> meaning_of(status s) {
  switch (s) {
    case status::invalid:
      return {errc::invalid_argument, "a kernel was not of the shape that its memory is for"};
    case status::unsupported:
    case status::unreachable:
      return {errc::not_supported, std::string("a way between ranks is ") + to_string(s)};
    case status::peer_lost:
      return {errc::peer_lost, "a rank is gone"};
    case status::aborted:
      return {errc::aborted, "a rank has given up"};
    default:
      return {errc::timeout, "nothing was done on any rank until the deadline"};
  }
}

}  // namespace

divided::state::state(world& on, const csr& whole, const partition& how, const divided_options& o,
                      std::vector<vertex> before)
    : w(on),
      g(whole),
      p(checked(how, on, whole)),
      was(std::move(before)),
      options(o),
      multiprocessors(multiprocessors_of_a_rank(on)),
      shape(shape_of(on, o, multiprocessors)),
      shape_of_rounds(shape_of_rounds_on(on, whole, o, multiprocessors, shape)),
      mine(take_part(whole, how, on.rank())),
      device(on.options().device),
      first(on_device(device, how.first)),
      outcomes(device, static_cast<std::size_t>(shape.blocks)),
      delta(o.delta == 0 ? default_delta(whole, 64) : o.delta),
      delta_of_rounds(o.delta == 0 && device.kind() == device_kind::cuda ? default_delta(whole, 256)
                                                                         : delta),
      longest(longest_of(whole)) {
  expect_equal_parts(w, g, p, was);
  if (parts() == 1) static_cast<void>(this->whole());
}

void divided::state::fail(const char* what, status s) const {
  // A command may find out that a rank is gone before the host has heard of it. The call ends when
  // it has: nobody puts that.
  if (s == status::peer_lost || s == status::aborted) {
    static_cast<void>(w.get(std::string(what) + ": a rank that is gone"));
  }
  const auto [code, why] = meaning_of(s);
  throw error(code, what, why);
}

run_report divided::state::end(const device::worklist_counts& counts, const rounds_work& work) {
  struct answer {
    std::int64_t took;
    std::int64_t in_kernels;
    dev::worklist_counts items;
    rounds_work work;
  };
  const auto ns = [](clock::duration d) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
  };
  run_report all;
  for (const answer& a : w.allgather(answer{ns(ended - began), ns(in_kernels), counts, work})) {
    all.took = std::max(all.took, std::chrono::nanoseconds(a.took));
    all.in_kernels = std::max(all.in_kernels, std::chrono::nanoseconds(a.in_kernels));
    all.items.made += a.items.made;
    all.items.done += a.items.done;
    all.items.stolen += a.items.stolen;
    all.items.spilled += a.items.spilled;
    all.items.parked += a.items.parked;
    all.items.forwarded += a.items.forwarded;
    all.items.epochs += a.items.epochs;
    all.rounds = std::max(all.rounds, a.work.rounds);
    all.edges += a.work.edges;
  }
  return all;
}

/// Each is made when first asked for, and kept.
struct divided::state::lists {
  /// Edges that lead to others' vertices, and where they begin.
  struct borders {
    borders(device_ref d, const part& p) : borders(d, p, indices(p)) {}
    borders(device_ref d, const part& p, const std::vector<std::uint64_t>& all)
        : count(all.size()),
          edges(on_device(d, all)),
          from(on_device(d, sources_of(p, all))),
          next(d, count + 1),
          heads(d, p.count + std::size_t{1}),
          above(d, p.count + std::size_t{1}),
          labels(d, p.count + p.others.size() + 1) {}
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
    [[nodiscard]] std::size_t bytes() const noexcept {
      return bytes_of(edges) + bytes_of(from) + bytes_of(next) + bytes_of(heads) + bytes_of(above) +
             bytes_of(labels);
    }
    std::uint64_t count;
    buffer<std::uint64_t> edges;
    buffer<vertex> from;
    buffer<std::uint64_t> next;
    buffer<std::uint64_t> heads;
    buffer<vertex> above;
    buffer<vertex> labels;
  };

  explicit lists(const divided::state& s) : route(s.w, s.options.route) {}

  template <class Program>
  using list_of = std::optional<worklist<typename Program::item>>;

  worklist_route route;
  list_of<dev::graph::bfs> bfs;
  list_of<dev::graph::sssp> sssp;
  list_of<dev::graph::components> cc;
  list_of<dev::graph::pagerank> pr;
  std::optional<buffer<std::uint64_t>> words;  ///< what is known of vertices; of bfs and sssp
  std::optional<buffer<double>> collected;     ///< of pr
  std::optional<borders> edges_out;            ///< of cc
};

namespace {

worklist_options list_options(const divided::state& s) {
  worklist_options o;
  o.workers = s.workers();
  o.queue = s.options.queue;
  if (o.queue == 0) o.queue = s.device.kind() == device_kind::cuda ? 256 : 4096;
  o.spill = s.options.spill != 0 ? s.options.spill : spill_for(s.known(), o.workers);
  o.park = o.spill;
  return o;
}

divided::state::lists& lists_of(divided::state& s) {
  if (!s.worklists) s.worklists = std::make_shared<divided::state::lists>(s);
  return *s.worklists;
}

template <class T>
buffer<T>& made(std::optional<buffer<T>>& b, device_ref d, std::size_t count) {
  if (!b) b.emplace(d, count + 1);
  return *b;
}

/// What the first rank says that has something to say; empty when there is none, or not all come. A
/// run ends by timeout on all ranks, and people read but one of their errors.
std::string first_of_all(world& w, const std::string& mine) {
  try {
    for (const auto& theirs : w.allgather(std::as_bytes(std::span(mine)))) {
      if (!theirs.empty()) return {reinterpret_cast<const char*>(theirs.data()), theirs.size()};
    }
  } catch (const error&) {
    return mine;
  }
  return "";
}

template <class Kernel, class Program>
run_report run_list(divided::state& s, const char* what,
                    std::optional<worklist<typename Program::item>>& list,
                    const worklist_options& o, Kernel kernel, const Program& program) {
  if (!list) list.emplace(s.w, o);
  s.begin();  // what is made once, by the first run, is not counted
  list->reset();
  try {
    s.run(what, s.shape, kernel, list->device(), program, lists_of(s).route.device());
  } catch (const error& e) {
    if (e.code() != errc::timeout) throw;
    const std::string lacked = first_of_all(s.w, list->complaint());
    if (lacked.empty()) throw;
    throw error(errc::timeout, what, lacked + " (of divided_options; --spill, --queue)", e.peer());
  }
  return s.end(list->counts(), {});
}

}  // namespace

vertex divided::state::source_of(vertex given) const {
  if (given >= g.vertices()) {
    throw refuse("source", std::to_string(given) + " in a graph of " +
                               std::to_string(g.vertices()) + " vertices");
  }
  if (was.empty()) return given;
  return static_cast<vertex>(std::find(was.begin(), was.end(), given) - was.begin());
}

divided::divided(world& w, const csr& g, const divided_options& o)
    : divided(w, g, edge_balanced(g, w.size()), o) {}
divided::divided(world& w, const csr& g, const partition& p, const divided_options& o)
    : state_(std::make_unique<state>(w, g, p, o)) {}
divided::divided(world& w, const renumbered& g, const divided_options& o)
    : state_(std::make_unique<state>(w, g.graph, g.parts, o, g.was)) {}
divided::~divided() = default;
divided::divided(divided&&) noexcept = default;

run_report divided::bfs(vertex given) {
  state& s = *state_;
  const vertex source = s.source_of(given);
  vertex* const parents = made(s.parents, s.device, s.mine.count).data();
  if (s.in_rounds()) return s.bfs_in_rounds(source);
  state::lists& l = lists_of(s);
  return run_list(
      s, "bfs", l.bfs, list_options(s), run_program<dev::graph::bfs>{},
      dev::graph::bfs{s.view(), made(l.words, s.device, s.known()).data(), parents, source});
}

run_report divided::sssp(vertex given) {
  state& s = *state_;
  const vertex source = s.source_of(given);
  if (!s.g.weighted() && s.g.edges() > 0) {
    throw refuse("sssp", "the graph has no lengths; with_lengths() draws some");
  }
  std::uint64_t* const distances = made(s.distances, s.device, s.mine.count).data();
  if (s.in_rounds() && s.paths_fit()) return s.sssp_in_rounds(source);
  state::lists& l = lists_of(s);
  worklist_options o = list_options(s);
  o.step = s.delta;
  o.threshold = o.step;
  return run_list(
      s, "sssp", l.sssp, o, run_program<dev::graph::sssp>{},
      dev::graph::sssp{s.view(), made(l.words, s.device, s.known()).data(), distances, source});
}

run_report divided::cc() {
  state& s = *state_;
  if (!s.g.symmetric()) {
    throw refuse("cc", "the graph is not symmetric: build it with build_options::symmetrise");
  }
  vertex* const labels = made(s.labels, s.device, s.mine.count).data();
  if (s.in_rounds()) return s.cc_in_rounds();
  state::lists& l = lists_of(s);
  if (!l.edges_out) l.edges_out.emplace(s.device, s.mine);
  const state::lists::borders& out = *l.edges_out;
  return run_list(s, "cc", l.cc, list_options(s), run_components{},
                  dev::graph::components{s.view(), out.above.data(), out.labels.data(), labels,
                                         out.edges.data(), out.from.data(), out.count,
                                         out.next.data(), out.heads.data()});
}

run_report divided::pr(const pagerank_options& o) {
  state& s = *state_;
  double* const ranks = made(s.ranks, s.device, s.mine.count).data();
  // Rounds pass shares on in 32 bits; below this they need not come to rest.
  constexpr double finest = 1e-6;
  const bool fine = o.tolerance < finest && s.options.how == method::automatic;
  if (!fine && s.in_rounds()) return s.pr_in_rounds(o);
  state::lists& l = lists_of(s);
  const double n = std::max<double>(1, s.g.vertices());
  // What may stay behind at all places where it is collected, and what it would have grown to.
  std::uint64_t places = 0;
  for (const std::uint64_t theirs : s.w.allgather(std::uint64_t{s.known()})) places += theirs;
  const double enough =
      o.tolerance * (1 - o.damping) / std::max<double>(1, static_cast<double>(places));
  worklist_options list = list_options(s);
  list.threshold = 0;
  return run_list(
      s, "pr", l.pr, list, run_program<dev::graph::pagerank>{},
      dev::graph::pagerank{s.view(), ranks, made(l.collected, s.device, s.known()).data(), enough,
                           o.damping, (1 - o.damping) / n});
}

std::vector<vertex> divided::parents() {
  const state& s = *state_;
  auto parents = s.as_given(state_->gather<vertex>(of_a_run(s.parents, "bfs")));
  for (vertex& v : parents) {
    if (v != no_vertex && !s.was.empty()) v = s.was[v];
  }
  return parents;
}
std::vector<std::uint32_t> divided::levels() {
  return levels_of(parents());
}
std::vector<distance> divided::distances() {
  return state_->as_given(state_->gather<distance>(of_a_run(state_->distances, "sssp")));
}
std::vector<vertex> divided::labels() {
  const state& s = *state_;
  auto labels = s.as_given(state_->gather<vertex>(of_a_run(s.labels, "cc")));
  if (s.was.empty()) return labels;
  // The least of a component is the first that has its label.
  std::vector<vertex> least(labels.size(), no_vertex);
  for (vertex v = 0; v < labels.size(); ++v) {
    if (least[labels[v]] == no_vertex) least[labels[v]] = v;
    labels[v] = least[labels[v]];
  }
  return labels;
}
std::vector<double> divided::ranks() {
  return state_->as_given(state_->gather<double>(of_a_run(state_->ranks, "pr")));
}

std::size_t divided::graph_bytes() const noexcept {
  const state& s = *state_;
  return bytes_of(s.first) + (s.all_rows ? s.all_rows->bytes() : 0) +
         (s.rounds ? graph_bytes_of(*s.rounds) : 0);
}
std::size_t divided::vertex_bytes() const noexcept {
  const state& s = *state_;
  std::size_t all = bytes_of(s.parents) + bytes_of(s.distances) + bytes_of(s.labels) +
                    bytes_of(s.ranks) + (s.rounds ? bytes_of(*s.rounds) : 0);
  if (!s.worklists) return all;
  const state::lists& l = *s.worklists;
  all += bytes_of(l.words) + bytes_of(l.collected);
  return l.edges_out ? all + l.edges_out->bytes() : all;
}
std::size_t divided::item_bytes() const noexcept {
  if (!state_->worklists) return 0;
  const state::lists& l = *state_->worklists;
  const auto of = [](const auto& list) { return list ? list->bytes() : std::size_t{0}; };
  return of(l.bfs) + of(l.sssp) + of(l.cc) + of(l.pr);
}

}  // namespace crosswarp::graph
