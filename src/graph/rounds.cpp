// Graph programs in rounds: their memory and their kernels.
#include "crosswarp/device/graph_rounds.hpp"
#include "graph/divided_state.hpp"

namespace crosswarp::graph {
namespace {

namespace dev = crosswarp::device;

struct run_rounds {
  template <class Program>
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const dev::symmetric<dev::graph::round_words>& words,
                        const Program& program, status* out) const {
    dev::graph::rounds all(ctx, w, words);
    const status s = dev::agree(ctx.block(), program.run(all));
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }
};

/// A rank's memory that all reach, each with a length of its own.
template <class T>
struct reachable {
  reachable(world& w, std::size_t count)
      : memory(w.options().device, std::max<std::size_t>(1, count)), shared(w, memory) {}
  struct view {
    view(world& w, const buffer<T>& b) : registered(w, b.data(), b.size() * sizeof(T)) {}
    [[nodiscard]] dev::symmetric<T> device() const { return registered.template device<T>(); }
    registration registered;
  };
  [[nodiscard]] dev::symmetric<T> device() const { return shared.device(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_of(memory); }
  buffer<T> memory;
  view shared;
};

std::size_t most_edges(const csr& g) {
  std::size_t most = 0;
  for (vertex v = 0; v < g.vertices(); ++v) most = std::max<std::size_t>(most, g.degree(v));
  return most;
}
std::uint64_t with_edges(const csr& g) {
  std::uint64_t count = 0;
  for (vertex v = 0; v < g.vertices(); ++v) count += g.degree(v) > 0 ? 1 : 0;
  return count;
}
/// Where vertices have many edges, what these bring is the same on average: ranks begin with that,
/// which saves rounds. `giving` vertices have edges. The others must not count: ranks would begin
/// with too much together, which goes away only slowly. Where edges are few, what is too much in
/// one place takes as many rounds to leave as it has steps to go, and equal ranks are nearer.
dev::graph::pagerank_rounds::guess first_guess(const csr& g, std::uint64_t giving, double damping) {
  constexpr std::uint64_t many = 8;
  const auto n = static_cast<double>(g.vertices());
  if (giving == 0 || g.edges() / giving < many) return {1 / n, 0};
  const double share = static_cast<double>(giving) / n / static_cast<double>(g.edges());
  return {(1 - damping) / n, damping * share};
}
/// The edges of vertices that have more than are one warp's.
std::vector<dev::graph::edge_pieces::piece> pieces_of(const std::vector<std::uint64_t>& offsets) {
  constexpr std::uint64_t whole = dev::graph::edge_pieces::most_of_one;
  std::vector<dev::graph::edge_pieces::piece> all;
  for (vertex v = 0; v + std::size_t{1} < offsets.size(); ++v) {
    const std::uint64_t edges = offsets[v + std::size_t{1}] - offsets[v];
    if (edges <= whole) continue;
    for (std::uint32_t k = 0; k * whole < edges; ++k) all.push_back({v, k});
  }
  return all;
}

}  // namespace

struct rounds_memory {
  explicit rounds_memory(divided::state& s)
      : words(s.w, 1),
        pieces(s.device, 1 + pieces_of(s.mine.offsets).size()),
        most(most_edges(s.g)) {}

  [[nodiscard]] dev::graph::edge_pieces edges() const { return {pieces.data(), most}; }

  struct search {
    search(divided::state& s, const buffer<vertex>& result)
        : parents(s.w, result),
          queues(s.w, std::size_t{2} * s.mine.count),
          fronts(s.w, 2 * bit_words(s.mine.count)),
          known(s.device, 1 + bit_words(s.known())),
          staged(s.device, static_cast<std::size_t>(s.workers() * s.w.size() *
                                                    dev::staged_items<vertex>::batch)),
          counts(s.device, static_cast<std::size_t>(s.workers() * s.w.size())) {}
    static std::size_t bit_words(std::size_t bits) { return (bits + 63) / 64; }
    [[nodiscard]] std::size_t bytes() const noexcept {
      return queues.bytes() + fronts.bytes() + bytes_of(known) + bytes_of(staged) +
             bytes_of(counts);
    }
    reachable<vertex>::view parents;
    reachable<vertex> queues;
    reachable<std::uint64_t> fronts;
    buffer<std::uint64_t> known;
    buffer<vertex> staged;
    buffer<int> counts;
  };
  /// Where vertices take from: the graph with its edges turned round, when it is not symmetric.
  struct sources {
    sources(const divided::state& s, const part& turned)
        : offsets(on_device(s.device, turned.offsets)),
          targets(on_device(s.device, turned.targets)),
          others(on_device(s.device, turned.others)),
          other_count(static_cast<vertex>(turned.others.size())),
          pieces(pieces_of(turned.offsets)) {}
    [[nodiscard]] std::size_t bytes() const noexcept {
      return bytes_of(offsets) + bytes_of(targets) + bytes_of(others);
    }
    buffer<std::uint64_t> offsets;
    buffer<vertex> targets;
    buffer<vertex> others;
    vertex other_count;
    std::vector<dev::graph::edge_pieces::piece> pieces;
  };
  /// What several threads of a GPU do together for one vertex.
  struct sums {
    sums(const divided::state& s, const std::vector<dev::graph::edge_pieces::piece>& all)
        : of_warps(s.device, static_cast<std::size_t>(s.workers())),
          pieces(on_device(s.device, all)),
          count(all.size()),
          collected(s.device, std::max<std::size_t>(1, s.mine.count)) {}
    [[nodiscard]] std::size_t bytes() const noexcept {
      return bytes_of(of_warps) + bytes_of(pieces) + bytes_of(collected);
    }
    buffer<double> of_warps;
    buffer<dev::graph::edge_pieces::piece> pieces;
    std::uint64_t count;
    buffer<double> collected;
  };

  reachable<dev::graph::round_words> words;
  buffer<dev::graph::edge_pieces::piece> pieces;
  std::uint64_t most;
  std::optional<search> bfs;
  struct paths {
    paths(divided::state& s, const buffer<std::uint64_t>& result)
        : words(s.w, result),
          queues(s.w, std::size_t{2} * s.mine.count),
          piles(s.w, std::size_t{2} * s.mine.count),
          told(s.device, std::max<std::size_t>(1, s.mine.others.size())),
          staged(s.device, static_cast<std::size_t>(2 * s.workers() * s.w.size() *
                                                    dev::staged_items<vertex>::batch)),
          counts(s.device, static_cast<std::size_t>(2 * s.workers() * s.w.size())) {}
    [[nodiscard]] std::size_t bytes() const noexcept {
      return queues.bytes() + piles.bytes() + bytes_of(told) + bytes_of(staged) + bytes_of(counts);
    }
    reachable<std::uint64_t>::view words;
    reachable<vertex> queues;
    reachable<vertex> piles;
    buffer<std::uint64_t> told;
    buffer<vertex> staged;
    buffer<int> counts;
  };
  std::optional<paths> sssp;
  std::optional<reachable<vertex>::view> forest;
  std::optional<sources> turned;
  std::optional<reachable<float>> shares;
  std::optional<sums> taken;
  std::optional<std::uint64_t> giving;  ///< vertices of the whole graph with edges
};

std::size_t bytes_of(const rounds_memory& m) noexcept {
  const auto of = [](const auto& some) { return some ? some->bytes() : std::size_t{0}; };
  return m.words.bytes() + bytes_of(m.pieces) + of(m.bfs) + of(m.sssp) + of(m.turned) +
         of(m.shares) + of(m.taken);
}

bool divided::state::in_rounds() const {
  if (options.how == method::worklist) return false;
  for (int r = 0; r < w.size(); ++r) {
    if (w.is_mapped(r) || r == w.rank()) continue;
    if (options.how == method::automatic) return false;
    throw error(errc::not_supported, "divided",
                "rounds read other ranks' memory by loads, and the way there is '" + w.path_to(r) +
                    "'; use method::worklist",
                r);
  }
  return true;
}

bool divided::state::paths_fit() const {
  constexpr std::uint64_t end = ~std::uint64_t{0} >> dev::graph::sssp_rounds::state_bits;
  if (longest < end / (std::uint64_t{g.vertices()} + 1)) return true;
  if (options.how == method::automatic) return false;
  throw error(errc::not_supported, "sssp",
              "paths may be longer than rounds can tell; use method::worklist");
}

namespace {
/// Zero before each run: written when all ranks have ended the last one, and seen by all behind
/// the barrier that begins the next.
void clear(rounds_memory& m) {
  m.words.memory.write(std::vector<dev::graph::round_words>(1));
}

rounds_memory& memory_of(divided::state& s) {
  if (!s.rounds) s.rounds = std::make_shared<rounds_memory>(s);
  return *s.rounds;
}

template <class Program>
run_report run_all(divided::state& s, const char* what, rounds_memory& m, const Program& program) {
  clear(m);
  s.w.barrier();
  s.run(what, run_rounds{}, s.w.device(), m.words.device(), program);
  const auto work = m.words.memory.read().front().work;
  return s.end({}, {work.rounds, work.edges});
}
}  // namespace

run_report divided::state::bfs_in_rounds(vertex source) {
  rounds_memory& m = memory_of(*this);
  if (!m.bfs) m.bfs.emplace(*this, *parents);
  return run_all(*this, "bfs", m,
                 dev::graph::bfs_rounds{view(), m.bfs->parents.device(), m.bfs->queues.device(),
                                        m.bfs->fronts.device(), m.bfs->known.data(),
                                        m.bfs->staged.data(), m.bfs->counts.data(), m.edges(),
                                        source, g.symmetric(), g.edges(), g.vertices()});
}

run_report divided::state::sssp_in_rounds(vertex source) {
  rounds_memory& m = memory_of(*this);
  if (!m.sssp) m.sssp.emplace(*this, *distances);
  const rounds_memory::paths& own = *m.sssp;
  return run_all(*this, "sssp", m,
                 dev::graph::sssp_rounds{view(), own.words.device(), own.queues.device(),
                                         own.piles.device(), own.told.data(), own.staged.data(),
                                         own.counts.data(), m.edges(), source, delta});
}

run_report divided::state::cc_in_rounds() {
  rounds_memory& m = memory_of(*this);
  if (!m.forest) m.forest.emplace(w, *labels);
  return run_all(*this, "cc", m,
                 dev::graph::components_rounds{view(), m.forest->device(), g.vertices()});
}

run_report divided::state::pr_in_rounds(const pagerank_options& o) {
  rounds_memory& m = memory_of(*this);
  dev::graph::part from = view();
  if (!g.symmetric()) {
    if (!m.turned) m.turned.emplace(*this, take_part(transpose(g), p, w.rank()));
    from.offsets = m.turned->offsets.data();
    from.targets = m.turned->targets.data();
    from.others = m.turned->others.data();
    from.other_count = m.turned->other_count;
  }
  if (!m.shares) m.shares.emplace(w, mine.count + std::size_t{from.other_count});
  if (!m.taken) m.taken.emplace(*this, m.turned ? m.turned->pieces : pieces_of(mine.offsets));
  if (!m.giving) m.giving = with_edges(g);
  return run_all(
      *this, "pr", m,
      dev::graph::pagerank_rounds{
          from, offsets.data(), m.shares->device(), ranks->data(), m.taken->of_warps.data(),
          m.taken->pieces.data(), m.taken->count, m.taken->collected.data(), o.damping, o.tolerance,
          static_cast<double>(g.vertices()), first_guess(g, *m.giving, o.damping), o.most_rounds});
}

}  // namespace crosswarp::graph
