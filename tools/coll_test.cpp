// crosswarp coll-test: collectives on all ranks, tested and measured, in the table of nccl-tests.
#include <fmt/core.h>

#include <algorithm>

#include "benchmarks/bench.hpp"
#include "coll_test/session.hpp"
#include "commands.hpp"
#include "crosswarp/options.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {
namespace {

using namespace coll_test;

/// A line of the table.
struct line {
  problem what;
  std::size_t asked = 0;  ///< bytes of the longer of input and result
  std::size_t bytes = 0;  ///< as many of them as are whole elements, the same of each rank
  std::optional<outcome> apart = {};
  std::optional<outcome> in_place = {};
};

/// What is to be done, for all ranks the same.
struct plan {
  std::vector<problem> kinds;  ///< without a count
  std::vector<std::size_t> sizes;
  session_options session;
  bool apart = true;
  bool in_place = true;
  bool peer = true;  ///< if there is one
};

/// What a rank has when all is done.
struct results {
  std::vector<line> lines;
  const char* peer = nullptr;  ///< to be measured, now that our ranks are out of the way
};

// ---- the command line

template <class T>
std::vector<T> chosen(const std::vector<T>& all, const std::string& name, const char* option) {
  if (name == "all") return all;
  return {named(all, name, option)};
}

bool exists(data_type type, coll_op redop) {
  const bool on_bits =
      redop == coll_op::bit_and || redop == coll_op::bit_or || redop == coll_op::bit_xor;
  return !on_bits || type == data_type::i32 || type == data_type::i64;
}

std::vector<problem> kinds_of(const coll_test_options& o) {
  std::vector<problem> kinds;
  const auto types = chosen(all_types(), o.type, "--type");
  const auto redops = chosen(all_redops(), o.redop, "--redop");
  for (const operation op : chosen(all_operations(), o.op, "--op")) {
    if (o.uneven && !in_parts(op)) continue;
    for (const data_type type : types) {
      const problem kind{.op = op, .type = type, .root = o.root, .uneven = o.uneven};
      if (!reduces(op)) {
        kinds.push_back(kind);
        continue;
      }
      for (const coll_op redop : redops) {
        if (!exists(type, redop)) continue;
        kinds.push_back(kind);
        kinds.back().redop = redop;
      }
    }
  }
  if (kinds.empty() && o.uneven) {
    throw error(errc::invalid_argument, "--uneven", o.op + " has no parts");
  }
  if (kinds.empty()) throw error(errc::invalid_argument, "--redop", o.redop + " of " + o.type);
  return kinds;
}

std::vector<std::size_t> sizes_of(const coll_test_options& o) {
  const std::size_t colon = o.bytes.find(':');
  const std::size_t from = options::parse_bytes(o.bytes.substr(0, colon), "--bytes");
  const std::size_t to = colon == std::string::npos
                             ? from
                             : options::parse_bytes(o.bytes.substr(colon + 1), "--bytes");
  if (from == 0 || to < from) {
    throw error(errc::invalid_argument, "--bytes", "'" + o.bytes + "' is no range, as 1K:64M is");
  }
  std::vector<std::size_t> all;
  const auto factor = static_cast<std::size_t>(o.factor);
  for (std::size_t bytes = from; bytes <= to; bytes *= factor) {
    all.push_back(bytes);
    if (bytes > to / factor) break;
  }
  return all;
}

plan plan_of(const coll_test_options& o) {
  plan p;
  p.kinds = kinds_of(o);
  p.sizes = sizes_of(o);
  p.session.longest = p.sizes.back();
  p.session.symmetric = o.symmetric;
  p.session.iterations = o.iterations;
  if (!o.algorithm.empty()) {
    if (o.op != "all_reduce") {
      throw error(errc::invalid_argument, "--algorithm", "only all_reduce has a choice");
    }
    const std::vector algorithms = {coll_algorithm::automatic, coll_algorithm::push,
                                    coll_algorithm::pull, coll_algorithm::two_shot,
                                    coll_algorithm::ring};
    p.session.algorithm = named(algorithms, o.algorithm, "--algorithm");
  }
  p.apart = o.in_place != "yes";
  p.in_place = o.in_place != "no";
  return p;
}

world_options world_for(const coll_test_options& o) {
  world_options w = world_options::from_environment();
  if (!o.device.empty()) w.device = device_ref::parse(o.device);
  // What a communicator takes on a GPU, and the memory under test.
  std::size_t needed = 64U << 20U;
  if (o.symmetric) needed += 2 * sizes_of(o).back() + (1U << 20U);
  w.heap_bytes = std::max(w.heap_bytes, needed);
  return w;
}

// ---- the table

std::string figures(const problem& p, std::size_t bytes, const std::optional<outcome>& o) {
  if (!o) return fmt::format("{:>9} {:>7} {:>7} {:>6}", "-", "-", "-", "-");
  if (o->us == 0) return fmt::format("{:>9} {:>7} {:>7} {:>6}", "-", "-", "-", o->wrong);
  const double rate = static_cast<double>(bytes) / o->us * 1e-3;
  return fmt::format("{:>9.2f} {:>7.2f} {:>7.2f} {:>6}", o->us, rate, rate * bus_factor(p),
                     o->wrong);
}

void print_head(int ranks, const world_options& o, const char* peer) {
  fmt::print("# {} ranks on {}; #wrong: integers exactly, floats within their roundings\n", ranks,
             o.device.name());
  fmt::print("# {:<16} {:>11} {:>11} {:>5} {:>8} {:>5} {:^33} {:^33}{}\n", "", "", "", "", "", "",
             "out-of-place", "in-place", peer != nullptr ? fmt::format("{:>10}", peer) : "");
  fmt::print("# {:<16} {:>11} {:>11} {:>5} {:>8} {:>5}", "operation", "size", "count", "type",
             "redop", "root");
  for (int i = 0; i < 2; ++i) {
    fmt::print(" {:>9} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
  }
  fmt::print("{}\n", peer != nullptr ? "      time   busbw" : "");
  fmt::print("# {:<16} {:>11} {:>11} {:>5} {:>8} {:>5}", "", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i)
    fmt::print(" {:>9} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  fmt::print("{}\n", peer != nullptr ? "      (us)  (GB/s)" : "");
}

void print_line(const line& l, const std::string& peer) {
  const problem& p = l.what;
  fmt::print("  {:<16} {:>11} {:>11} {:>5} {:>8} {:>5} {} {}{}\n", name_of(p), l.bytes, p.count,
             to_string(p.type), reduces(p.op) ? to_string(p.redop) : "none",
             has_root(p.op) ? p.root : -1, figures(p, l.bytes, l.apart),
             figures(p, l.bytes, l.in_place), peer);
  std::fflush(stdout);
}

void print_end(const std::vector<line>& lines) {
  std::size_t wrong = 0;
  double sum = 0;
  int measured = 0;
  for (const line& l : lines) {
    for (const auto& o : {l.apart, l.in_place}) {
      if (!o) continue;
      wrong += o->wrong;
      if (o->us == 0) continue;
      sum += static_cast<double>(l.bytes) / o->us * 1e-3 * bus_factor(l.what);
      ++measured;
    }
  }
  fmt::print("# Wrong values: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (measured != 0) fmt::print("# Average bus bandwidth: {:.3f} GB/s\n", sum / measured);
}

/// Another library's times of one kind of call, for the table's last columns.
class peer_columns {
 public:
  peer_columns(const plan& p, const char* peer)
      : measure_(std::string_view(peer) == "MPI" ? &bench::times_of_mpi : &bench::times_of_nccl),
        sizes_(p.sizes) {}

  std::string of(const line& l) {
    const problem& p = l.what;
    const std::string kind = std::string(to_string(p.op)) + to_string(p.type) + to_string(p.redop);
    if (kind != kind_) {
      kind_ = kind;
      times_ = measure_({to_string(p.op), to_string(p.type), to_string(p.redop)}, p.ranks, sizes_);
    }
    const auto found = times_.find(l.asked);
    if (found == times_.end()) return fmt::format("{:>10} {:>7}", "-", "-");
    const double rate = static_cast<double>(l.bytes) / found->second * 1e-3;
    return fmt::format("{:>10.2f} {:>7.2f}", found->second, rate * bus_factor(p));
  }

 private:
  decltype(&bench::times_of_mpi) measure_;
  std::vector<std::size_t> sizes_;
  std::string kind_;
  std::map<std::size_t, double> times_;
};

// ---- on ranks

/// MPI on CPUs; NCCL where every rank has a GPU of its own, which it needs.
const char* peer_of(world& w, const plan& p) {
  if (!p.peer || p.session.iterations == 0) return nullptr;
  const device_ref mine = w.options().device;
  if (mine.kind() == device_kind::cpu) return bench::has_mpi_peer() ? "MPI" : nullptr;
  auto gpus = w.allgather(mine.ordinal());
  std::sort(gpus.begin(), gpus.end());
  const bool own = std::adjacent_find(gpus.begin(), gpus.end()) == gpus.end();
  return own && w.node_count() == 1 && bench::has_nccl_peer() ? "NCCL" : nullptr;
}

/// The lines of all problems, on every rank; rank 0 shows each when it is there, unless all are
/// shown later.
results run_plan(world& w, const plan& p) {
  session calls(w, p.session);
  const char* const peer = peer_of(w, p);
  const bool shown = w.rank() == 0 && peer == nullptr;
  if (shown) print_head(w.size(), w.options(), nullptr);
  std::vector<line> lines;
  for (problem what : p.kinds) {
    what.ranks = w.size();
    if (has_root(what.op) && (what.root < 0 || what.root >= w.size())) {
      throw error(errc::invalid_argument, "--root", fmt::format("no rank {}", what.root));
    }
    const std::size_t parts = in_parts(what.op) ? static_cast<std::size_t>(w.size()) : 1;
    for (const std::size_t bytes : p.sizes) {
      what.count = bytes / size_of(what.type) / parts;
      line l{what, bytes, what.count * parts * size_of(what.type)};
      if (p.apart && calls.has(what, false)) l.apart = calls.run(what, false);
      if (p.in_place && calls.has(what, true)) l.in_place = calls.run(what, true);
      if (shown) print_line(l, "");
      lines.push_back(l);
    }
  }
  w.barrier();
  return {std::move(lines), peer};
}

bool all_right(const std::vector<line>& lines) {
  for (const line& l : lines) {
    if ((l.apart && l.apart->wrong != 0) || (l.in_place && l.in_place->wrong != 0)) return false;
  }
  return true;
}

}  // namespace

int test_collectives(const coll_test_options& o) {
  if (o.threads != 0 && launched()) {
    throw error(errc::invalid_argument, "--threads",
                "a launcher has started this as a rank: either processes or threads");
  }
  plan p = plan_of(o);
  const world_options options = world_for(o);
  p.peer = o.peer && !o.uneven;  // peers' programs have even parts
  if (!launched()) prepare_shared_gpu(options.device);
  results all;
  bool first = false;
  run(o.threads == 0 ? 4 : o.threads, options, [&](world& w) {
    auto mine = run_plan(w, p);
    if (w.rank() != 0 && !launched()) return;
    all = std::move(mine);
    first = w.rank() == 0;
  });
  if (first && all.peer != nullptr) {
    // Ours are done and gone: they would be in the peer's way.
    print_head(all.lines.front().what.ranks, options, all.peer);
    peer_columns peer(p, all.peer);
    for (const line& l : all.lines) print_line(l, peer.of(l));
  }
  if (first) print_end(all.lines);
  return all_right(all.lines) ? 0 : 1;
}

}  // namespace crosswarp::tool
