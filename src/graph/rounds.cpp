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
  buffer<T> memory;
  view shared;
};

std::size_t most_edges(const csr& g) {
  std::size_t most = 0;
  for (vertex v = 0; v < g.vertices(); ++v) most = std::max<std::size_t>(most, g.degree(v));
  return most;
}

}  // namespace

struct rounds_memory {
  explicit rounds_memory(world& w) : words(w, 1) {}

  struct search {
    search(divided::state& s, const buffer<vertex>& result)
        : parents(s.w, result),
          queues(s.w, std::size_t{2} * s.mine.count),
          fronts(s.w, 2 * bit_words(s.mine.count)),
          known(s.device, 1 + bit_words(s.known())),
          staged(s.device, static_cast<std::size_t>(s.workers() * s.w.size() *
                                                    dev::staged_items<vertex>::batch)),
          counts(s.device, static_cast<std::size_t>(s.workers() * s.w.size())),
          most(most_edges(s.g)) {}
    static std::size_t bit_words(std::size_t bits) { return (bits + 63) / 64; }
    reachable<vertex>::view parents;
    reachable<vertex> queues;
    reachable<std::uint64_t> fronts;
    buffer<std::uint64_t> known;
    buffer<vertex> staged;
    buffer<int> counts;
    std::uint64_t most;
  };
  /// Where vertices take from: the graph with its edges turned round, when it is not symmetric.
  struct sources {
    sources(const divided::state& s, const part& turned)
        : offsets(on_device(s.device, turned.offsets)),
          targets(on_device(s.device, turned.targets)),
          others(on_device(s.device, turned.others)),
          other_count(static_cast<vertex>(turned.others.size())) {}
    buffer<std::uint64_t> offsets;
    buffer<vertex> targets;
    buffer<vertex> others;
    vertex other_count;
  };

  reachable<dev::graph::round_words> words;
  std::optional<search> bfs;
  std::optional<reachable<vertex>::view> forest;
  std::optional<sources> turned;
  std::optional<reachable<float>> shares;
};

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

namespace {
/// Zero before each run: written when all ranks have ended the last one, and seen by all behind
/// the barrier that begins the next.
void clear(rounds_memory& m) {
  m.words.memory.write(std::vector<dev::graph::round_words>(1));
}

rounds_memory& memory_of(divided::state& s) {
  if (!s.rounds) s.rounds = std::make_shared<rounds_memory>(s.w);
  return *s.rounds;
}

template <class Program>
run_report run_all(divided::state& s, const char* what, rounds_memory& m, const Program& program) {
  clear(m);
  s.w.barrier();
  s.run(what, run_rounds{}, s.w.device(), m.words.device(), program);
  return s.end({});
}
}  // namespace

run_report divided::state::bfs_in_rounds(vertex source) {
  rounds_memory& m = memory_of(*this);
  if (!m.bfs) m.bfs.emplace(*this, *parents);
  return run_all(*this, "bfs", m,
                 dev::graph::bfs_rounds{view(), m.bfs->parents.device(), m.bfs->queues.device(),
                                        m.bfs->fronts.device(), m.bfs->known.data(),
                                        m.bfs->staged.data(), m.bfs->counts.data(), source,
                                        g.symmetric(), g.edges(), g.vertices(), m.bfs->most});
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
  return run_all(*this, "pr", m,
                 dev::graph::pagerank_rounds{from, offsets.data(), m.shares->device(),
                                             ranks->data(), o.damping, o.tolerance,
                                             static_cast<double>(g.vertices()), o.most_rounds});
}

}  // namespace crosswarp::graph
