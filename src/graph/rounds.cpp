// Graph programs in rounds: their memory and their kernels.
#include "crosswarp/device/graph_rounds.hpp"
#include "graph/divided_state.hpp"

namespace crosswarp::graph {
namespace {

namespace dev = crosswarp::device;

/// A part's share of a run: its words, and the program with its memory.
template <class Program>
struct share {
  dev::symmetric<dev::graph::round_words> words;
  Program program;
};

struct run_rounds {
  static constexpr int max_threads = most_threads_of_rounds;
  /// `of_blocks`: not null when each block has a part of its own, on a CPU.
  template <class Program>
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::world& w,
                        const share<Program>& of_rank,
                        [[maybe_unused]] const share<Program>* of_blocks, status* out) const {
#if CW_ON_GPU
    const share<Program>& mine = of_rank;
    constexpr bool by_block = false;
#else
    const bool by_block = of_blocks != nullptr;
    const share<Program>& mine = by_block ? of_blocks[ctx.block_index()] : of_rank;
#endif
    dev::graph::rounds all(ctx, w, mine.words, by_block);
    const status s = dev::agree(ctx.block(), mine.program.run(all));
    if (ctx.thread_index() == 0) out[ctx.block_index()] = s;
  }
};

/// How vertices are divided among ranks, and each rank's among its parts. Equal on all ranks.
struct division {
  explicit division(divided::state& s)
      : rank(s.w.rank()), of_rank(agreed(s)), vertices(finer(s.g, s.p, of_rank)) {}

  [[nodiscard]] int all() const { return vertices.ranks(); }
  /// The number of the rank's `k`th part.
  [[nodiscard]] int number(int k) const { return rank * of_rank + k; }
  /// By own part: how many vertices of the rank are before it.
  [[nodiscard]] std::vector<std::size_t> begins() const {
    std::vector<std::size_t> of;
    of.reserve(static_cast<std::size_t>(of_rank));
    const auto first = vertices.first.begin() + number(0);
    for (int k = 0; k < of_rank; ++k) of.push_back(first[k] - *first);
    return of;
  }

  int rank;
  int of_rank;
  partition vertices;

 private:
  /// One where ranks do not agree.
  static int agreed(divided::state& s) {
    const auto all = s.w.allgather(s.parts());
    return std::count(all.begin(), all.end(), all[0]) == s.w.size() ? all[0] : 1;
  }
  /// As many edges and vertices for each part of a rank, as edge_balanced() does for ranks.
  static partition finer(const csr& g, const partition& p, int pieces) {
    const auto before = [&](vertex v) { return g.offsets()[v] + v; };
    partition fine;
    for (std::size_t r = 0; r + 1 < p.first.size(); ++r) {
      const std::uint64_t all = before(p.first[r + 1]) - before(p.first[r]);
      const auto n = static_cast<std::uint64_t>(pieces);
      vertex v = p.first[r];
      for (std::uint64_t k = 0; k < n; ++k) {
        const std::uint64_t to = before(p.first[r]) + all / n * k + all % n * k / n;
        while (v < p.first[r + 1] && before(v) < to) ++v;
        fine.first.push_back(v);
      }
    }
    fine.first.push_back(p.first.back());
    return fine;
  }
};

/// A rank's memory that all parts reach, each with a length of its own.
template <class T>
struct reachable {
  /// `counts`: by own part.
  reachable(world& w, const division& d, const std::vector<std::size_t>& counts)
      : memory(w.options().device, std::max<std::size_t>(1, end_of(counts))),
        shared(w, d, memory, begins_of(counts)) {}
  struct view {
    /// `begins`: by own part, where it begins in the rank's memory.
    view(world& w, const division& d, const buffer<T>& b, const std::vector<std::size_t>& begins)
        : registered(w, b.data(), b.size() * sizeof(T)), first(d.number(0)) {
      if (d.of_rank == 1) return;
      std::vector<std::uint64_t> bytes;
      bytes.reserve(begins.size());
      for (const std::size_t i : begins) bytes.push_back(i * sizeof(T));
      const auto of_rank = registered.template device<std::byte>();
      const auto all = w.allgather(std::as_bytes(std::span(bytes)));
      for (int r = 0; r < w.size(); ++r) {
        std::memcpy(bytes.data(), all[static_cast<std::size_t>(r)].data(),
                    bytes.size() * sizeof(std::uint64_t));
        for (const std::uint64_t at : bytes) {
          parts.push_back(
              {of_rank.at(r) + at, r == w.rank() ? dev::path::self : dev::path::mapped});
        }
      }
    }
    /// As the rank's `k`th part sees it.
    [[nodiscard]] dev::symmetric<T> device(int k) const {
      if (parts.empty()) return registered.template device<T>();
      dev::peer_table table;
      table.all = parts.data();
      table.ranks = static_cast<int>(parts.size());
      table.reach = registered.peers().reach;
      return {table, first + k, 0, registered.template device<T>().size()};
    }
    registration registered;
    int first;
    std::vector<dev::peer> parts;  ///< empty when each rank is one
  };
  [[nodiscard]] dev::symmetric<T> device(int k) const { return shared.device(k); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_of(memory); }
  buffer<T> memory;
  view shared;

 private:
  /// Parts have lines of their own.
  static std::size_t padded(std::size_t count) {
    constexpr std::size_t line = std::max<std::size_t>(1, dev::line_bytes / sizeof(T));
    return (count + line - 1) / line * line;
  }
  static std::vector<std::size_t> begins_of(const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> begins;
    std::size_t at = 0;
    for (const std::size_t n : counts) {
      begins.push_back(at);
      at += padded(n);
    }
    return begins;
  }
  static std::size_t end_of(const std::vector<std::size_t>& counts) {
    std::size_t end = 0;
    for (const std::size_t n : counts) end += padded(n);
    return end;
  }
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
      : how(s), words(s.w, how, counts(how.of_rank, [](int) { return 1; })), most(most_edges(s.g)) {
    if (how.of_rank == 1) {
      pieces.emplace_back(s.device, 1 + pieces_of(s.mine.offsets).size());
      return;
    }
    first.emplace(on_device(s.device, how.vertices.first));
    for (int k = 0; k < how.of_rank; ++k) {
      const part p = take_part(s.g, how.vertices, how.number(k));
      parts.emplace_back(s.device, p);
      pieces.emplace_back(s.device, 1 + pieces_of(p.offsets).size());
    }
  }

  /// f(k) for each part of the rank.
  template <class F>
  static std::vector<std::size_t> counts(int parts, const F& f) {
    std::vector<std::size_t> all;
    all.reserve(static_cast<std::size_t>(parts));
    for (int k = 0; k < parts; ++k) all.push_back(static_cast<std::size_t>(f(k)));
    return all;
  }
  [[nodiscard]] dev::graph::part view(divided::state& s, int k) const {
    if (parts.empty()) return s.view();
    return parts[static_cast<std::size_t>(k)].view(*first, how.number(k), how.all());
  }
  [[nodiscard]] const rows& rows_of(divided::state& s, int k) const {
    return parts.empty() ? s.whole() : parts[static_cast<std::size_t>(k)];
  }
  [[nodiscard]] dev::graph::edge_pieces edges(int k) const {
    return {pieces[static_cast<std::size_t>(k)].data(), most};
  }
  /// What a part's warps collect for each part before they send it.
  struct stage {
    stage(const divided::state& s, const division& how, int lists)
        : items(s.device, static_cast<std::size_t>(warps(s, how) * lists * how.all() *
                                                   dev::staged_items<vertex>::batch)),
          counts(s.device, static_cast<std::size_t>(warps(s, how) * lists * how.all())) {}
    static int warps(const divided::state& s, const division& how) {
      return how.of_rank == 1 ? workers_of(s.shape_of_rounds) : 1;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_of(items) + bytes_of(counts); }
    buffer<vertex> items;
    buffer<int> counts;
  };
  template <class List>
  static std::size_t sum_of(const List& all) noexcept {
    std::size_t sum = 0;
    for (const auto& x : all) sum += x.bytes();
    return sum;
  }

  struct search {
    search(divided::state& s, const rounds_memory& m, const buffer<vertex>& result)
        : parents(s.w, m.how, result, m.how.begins()),
          queues(
              s.w, m.how,
              counts(m.how.of_rank, [&](int k) { return std::size_t{2} * m.rows_of(s, k).count; })),
          fronts(s.w, m.how, counts(m.how.of_rank, [&](int k) {
                   return 2 * bit_words(m.rows_of(s, k).count);
                 })) {
      for (int k = 0; k < m.how.of_rank; ++k) {
        const rows& r = m.rows_of(s, k);
        known.emplace_back(s.device, 1 + bit_words(r.count + std::size_t{r.other_count}));
        staged.emplace_back(s, m.how, 1);
      }
    }
    static std::size_t bit_words(std::size_t bits) { return (bits + 63) / 64; }
    [[nodiscard]] std::size_t bytes() const noexcept {
      std::size_t all = queues.bytes() + fronts.bytes() + sum_of(staged);
      for (const auto& b : known) all += bytes_of(b);
      return all;
    }
    reachable<vertex>::view parents;
    reachable<vertex> queues;
    reachable<std::uint64_t> fronts;
    std::vector<buffer<std::uint64_t>> known;
    std::vector<stage> staged;
  };
  struct paths {
    paths(divided::state& s, const rounds_memory& m, const buffer<std::uint64_t>& result)
        : words(s.w, m.how, result, m.how.begins()),
          queues(s.w, m.how, twice_each(s, m)),
          piles(s.w, m.how, twice_each(s, m)) {
      for (int k = 0; k < m.how.of_rank; ++k) {
        told.emplace_back(s.device, std::max<std::size_t>(1, m.rows_of(s, k).other_count));
        staged.emplace_back(s, m.how, 2);
      }
    }
    static std::vector<std::size_t> twice_each(divided::state& s, const rounds_memory& m) {
      return counts(m.how.of_rank, [&](int k) { return std::size_t{2} * m.rows_of(s, k).count; });
    }
    [[nodiscard]] std::size_t bytes() const noexcept {
      std::size_t all = queues.bytes() + piles.bytes() + sum_of(staged);
      for (const auto& b : told) all += bytes_of(b);
      return all;
    }
    reachable<std::uint64_t>::view words;
    reachable<vertex> queues;
    reachable<vertex> piles;
    std::vector<buffer<std::uint64_t>> told;
    std::vector<stage> staged;
  };
  /// What several threads of a GPU do together for one vertex.
  struct sums {
    sums(const divided::state& s, std::size_t own,
         const std::vector<dev::graph::edge_pieces::piece>& all)
        : pieces(on_device(s.device, all)),
          count(all.size()),
          collected(s.device, std::max<std::size_t>(1, own)) {}
    [[nodiscard]] std::size_t bytes() const noexcept {
      return bytes_of(pieces) + bytes_of(collected);
    }
    buffer<dev::graph::edge_pieces::piece> pieces;
    std::uint64_t count;
    buffer<double> collected;
  };
  /// Where vertices take from.
  struct takings {
    /// With its edges turned round, when the graph is not symmetric.
    static std::vector<rows> turned_rows(const divided::state& s, const division& how) {
      std::vector<rows> turned;
      if (s.g.symmetric()) return turned;
      const csr back = transpose(s.g);
      for (int k = 0; k < how.of_rank; ++k) {
        turned.emplace_back(s.device, take_part(back, how.vertices, how.number(k)));
      }
      return turned;
    }
    takings(divided::state& s, const rounds_memory& m)
        : turned(turned_rows(s, m.how)),
          shares(s.w, m.how,
                 counts(m.how.of_rank,
                        [&](int k) {
                          const rows& r = from(s, m, k);
                          return r.count + std::size_t{r.other_count};
                        })),
          giving(with_edges(s.g)) {
      for (int k = 0; k < m.how.of_rank; ++k) {
        const rows& r = from(s, m, k);
        taken.emplace_back(s, r.count, pieces_of(r.offsets.read()));
      }
    }
    [[nodiscard]] const rows& from(divided::state& s, const rounds_memory& m, int k) const {
      return turned.empty() ? m.rows_of(s, k) : turned[static_cast<std::size_t>(k)];
    }
    [[nodiscard]] std::size_t bytes() const noexcept {
      return sum_of(turned) + shares.bytes() + sum_of(taken);
    }
    std::vector<rows> turned;
    reachable<float> shares;
    std::vector<sums> taken;
    std::uint64_t giving;  ///< vertices of the whole graph with edges
  };

  division how;
  std::optional<buffer<vertex>> first;  ///< of parts
  std::vector<rows> parts;  ///< the rank's; empty when there is one, which the state has
  reachable<dev::graph::round_words> words;
  std::vector<buffer<dev::graph::edge_pieces::piece>> pieces;
  std::uint64_t most;
  std::optional<search> bfs;
  std::optional<paths> sssp;
  std::optional<reachable<vertex>::view> forest;
  std::optional<takings> pr;
};

std::size_t bytes_of(const rounds_memory& m) noexcept {
  const auto of = [](const auto& some) { return some ? some->bytes() : std::size_t{0}; };
  std::size_t all = m.words.bytes() + of(m.bfs) + of(m.sssp) + of(m.pr);
  for (const auto& b : m.pieces) all += bytes_of(b);
  return all;
}
std::size_t graph_bytes_of(const rounds_memory& m) noexcept {
  return bytes_of(m.first) + rounds_memory::sum_of(m.parts);
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
  m.words.memory.write(std::vector<dev::graph::round_words>(m.words.memory.size()));
}

rounds_memory& memory_of(divided::state& s) {
  if (!s.rounds) s.rounds = std::make_shared<rounds_memory>(s);
  return *s.rounds;
}

/// `program(k)`: of the rank's `k`th part.
template <class F>
run_report run_all(divided::state& s, const char* what, rounds_memory& m, const F& program) {
  using task = share<decltype(program(0))>;
  std::vector<task> tasks;
  tasks.reserve(static_cast<std::size_t>(m.how.of_rank));
  for (int k = 0; k < m.how.of_rank; ++k) tasks.push_back({m.words.device(k), program(k)});
  s.begin();  // what is made once, by the first run, is not counted
  clear(m);
  s.w.barrier();
  // Blocks of a CPU read it where it is.
  s.run(what, s.shape_of_rounds, run_rounds{}, s.w.device(), tasks.front(),
        tasks.size() > 1 ? tasks.data() : nullptr);
  rounds_work all;
  for (const auto& words : m.words.memory.read()) {
    all.rounds = std::max(all.rounds, words.work.rounds);
    all.edges += words.work.edges;
  }
  return s.end({}, all);
}
}  // namespace

run_report divided::state::bfs_in_rounds(vertex source) {
  rounds_memory& m = memory_of(*this);
  if (!m.bfs) m.bfs.emplace(*this, m, *parents);
  return run_all(*this, "bfs", m, [&](int k) {
    const auto i = static_cast<std::size_t>(k);
    const rounds_memory::search& own = *m.bfs;
    return dev::graph::bfs_rounds{m.view(*this, k),
                                  own.parents.device(k),
                                  own.queues.device(k),
                                  own.fronts.device(k),
                                  own.known[i].data(),
                                  own.staged[i].items.data(),
                                  own.staged[i].counts.data(),
                                  m.edges(k),
                                  source,
                                  g.symmetric(),
                                  g.edges(),
                                  g.vertices()};
  });
}

run_report divided::state::sssp_in_rounds(vertex source) {
  rounds_memory& m = memory_of(*this);
  if (!m.sssp) m.sssp.emplace(*this, m, *distances);
  return run_all(*this, "sssp", m, [&](int k) {
    const auto i = static_cast<std::size_t>(k);
    const rounds_memory::paths& own = *m.sssp;
    return dev::graph::sssp_rounds{m.view(*this, k),
                                   own.words.device(k),
                                   own.queues.device(k),
                                   own.piles.device(k),
                                   own.told[i].data(),
                                   own.staged[i].items.data(),
                                   own.staged[i].counts.data(),
                                   m.edges(k),
                                   source,
                                   delta_of_rounds};
  });
}

run_report divided::state::cc_in_rounds() {
  rounds_memory& m = memory_of(*this);
  if (!m.forest) m.forest.emplace(w, m.how, *labels, m.how.begins());
  return run_all(*this, "cc", m, [&](int k) {
    return dev::graph::components_rounds{m.view(*this, k), m.forest->device(k), g.vertices()};
  });
}

run_report divided::state::pr_in_rounds(const pagerank_options& o) {
  rounds_memory& m = memory_of(*this);
  if (!m.pr) m.pr.emplace(*this, m);
  const auto begins = m.how.begins();
  return run_all(*this, "pr", m, [&](int k) {
    const auto i = static_cast<std::size_t>(k);
    const rounds_memory::sums& taken = m.pr->taken[i];
    const dev::graph::part out = m.view(*this, k);
    dev::graph::part from = out;
    if (!m.pr->turned.empty()) {
      const rows& turned = m.pr->turned[i];
      from.offsets = turned.offsets.data();
      from.targets = turned.targets.data();
      from.others = turned.others.data();
      from.other_count = turned.other_count;
    }
    return dev::graph::pagerank_rounds{from,
                                       out.offsets,
                                       m.pr->shares.device(k),
                                       ranks->data() + begins[i],
                                       taken.pieces.data(),
                                       taken.count,
                                       taken.collected.data(),
                                       o.damping,
                                       o.tolerance,
                                       static_cast<double>(g.vertices()),
                                       first_guess(g, m.pr->giving, o.damping),
                                       o.most_rounds};
  });
}

}  // namespace crosswarp::graph
