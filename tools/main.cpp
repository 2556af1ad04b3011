// The crosswarp command.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "commands.hpp"
#include "core/variables.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace tool = crosswarp::tool;

namespace {

/// Refuses what is no integer in words of ours: the parser's do not say what was expected.
CLI::Validator integer(const std::string& meaning) {
  return {[meaning](std::string& text) {
            int value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, bad] = std::from_chars(text.data(), end, value);
            const bool good = bad == std::errc{} && stop == end;
            return good ? "" : fmt::format("'{}' is not {}", text, meaning);
          },
          ""};
}

void add_run(CLI::App& app, tool::run_options& o) {
  CLI::App* run = app.add_subcommand("run", "Start a program on several ranks of this machine");
  run->add_option("-n,--ranks", o.ranks, "Number of ranks")
      ->required()
      ->check(integer("a number of ranks"));
  run->add_option("--nodes", o.nodes, "Pretend that the ranks are spread over so many machines")
      ->check(integer("a number of machines"));
  run->add_option("--device", o.device, "Where kernels run: cpu, cuda, cuda:N, auto");
  run->add_option("--heap", o.heap, "Symmetric heap on each rank, e.g. 256M");
  run->add_flag_callback(
      "--no-prefix", [&o] { o.prefix = false; }, "Do not put [rank] before each line of output");
  run->add_flag("--stats", o.stats, "At the end, a table of what kernels and their proxies did");
  run->add_option("--trace", o.trace, "Write a trace of all ranks to this file");
  run->add_option("command", "The program and its arguments")->required();  // see split_command()
}

void add_info(CLI::App& app, tool::info_options& o) {
  CLI::App* info =
      app.add_subcommand("info", "Show devices, topology, transports, engines and versions");
  info->add_flag("--json", o.json, "As JSON");
  info->add_flag("--env", o.environment, "Show the environment variables instead");
}

void add_doctor(CLI::App& app, tool::doctor_options& o) {
  CLI::App* doctor = app.add_subcommand(
      "doctor",
      "Find what is wrong on this machine and say what to do; exit code 1 when something will not "
      "work, 0 otherwise");
  doctor->add_flag("--json", o.json,
                   "As JSON: area, severity (ok, hint, problem, skipped), seen, "
                   "remedy");
  doctor->add_option("-n,--ranks", o.ranks, "Judge limits and cores for so many ranks")
      ->check(integer("a number of ranks"));
  auto* listen =
      doctor
          ->add_option("--listen", o.listen,
                       "Instead: wait at this port (0: any) for --reach from another machine")
          ->check(integer("a port"));
  doctor->add_option("--reach", o.reach, "Instead: HOST:PORT, whether TCP passes there and back")
      ->excludes(listen);
  doctor
      ->add_option("--timeout", o.timeout,
                   "Seconds to wait for the other machine (--listen: 60, --reach: 5)")
      ->check(integer("a number of seconds"));
}

void add_trace(CLI::App& app, tool::trace_options& o) {
  CLI::App* trace = app.add_subcommand(
      "trace", "Show what a trace of CROSSWARP_TRACE says: costs, waits, longest calls");
  trace->add_option("files", o.files, "The file, or the parts that the ranks of a broken job left")
      ->required();
  trace->add_option("--top", o.top, "Lines of each table")->check(CLI::Range(1, 1'000'000));
}

void add_bench(CLI::App& app, tool::bench_options& o) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure: exec, memory, proxy, shmem, coll, rdma, flow, socket, graph");
  bench->add_option("names", o.names, "Which benchmarks")->required();
  bench->add_option("--device", o.device, "cpu, cuda, cuda:N, auto");
  bench->add_flag("--processes", o.processes, "Ranks are processes (the default on the CPU)");
  bench->add_flag("--threads", o.threads, "Ranks are threads (the default on a GPU)");
  bench->add_flag("--quick", o.quick,
                  "A first look: about a quarter of the samples, so medians are rough, p10 and p90 "
                  "rougher; no job starts, no peer, no puts above 16 MiB (64 MiB on a GPU)");
  bench->add_option("--scope", o.scope, "shmem: who calls")
      ->check(CLI::IsMember({"thread", "warp", "block"}));
  bench->add_option("--op", o.op,
                    "shmem: only put, get, p, g, amo, signal or barrier; coll: all_reduce, "
                    "reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather or scatter; "
                    "graph: bfs, sssp, pr or cc");
  bench->add_option("--path", o.path, "shmem: by loads and stores, or by this engine of the proxy")
      ->check(CLI::IsMember({"mapped", "local", "ucx", "mpi"}));
  bench->add_option("--bytes", o.bytes, "coll: from and to, as 1K:64M; 4 times as many each time");
  bench->add_flag("--graph", o.graph, "coll: 50 calls of bf16, recorded once and replayed");
  bench->add_option("--ranks", o.ranks, "coll, graph: how many")->check(CLI::Range(1, 64));
  bench
      ->add_option("--scale", o.scale,
                   "graph: 2^scale vertices (18), in a grid 16 times as many as in the others")
      ->check(CLI::Range(1, 26));
  bench
      ->add_option("--blocks", o.blocks,
                   "graph: blocks of each rank's kernel, on a CPU threads that work for it; "
                   "--ranks 1 --blocks 2 beside --ranks 2 is what it costs to divide the graph")
      ->check(CLI::Range(1, 1024));
  bench->add_option("--method", o.method, "graph: how ranks work together; without it as it suits")
      ->check(CLI::IsMember({"rounds", "worklist"}));
  bench->add_option("--gapbs", o.gapbs,
                    "graph: where GAPBS's programs are, to be measured beside on the same graphs");
  bench
      ->add_option("--peer", o.peer,
                   "Measured beside it. coll: mpi, nccl or none; shmem: oshmem or none. Without it "
                   "what there is")
      ->check(CLI::IsMember({"mpi", "nccl", "oshmem", "none"}));
  bench->add_flag("--json", o.json, "As JSON");
  bench->add_option("--plot", o.plot, "Also draw an SVG file");
}

void add_coll_test(CLI::App& app, tool::coll_test_options& o) {
  CLI::App* test = app.add_subcommand(
      "coll-test",
      "Test and measure collectives, in the table of nccl-tests; under crosswarp run, mpirun, or "
      "as threads; exit code 1 when a result is wrong");
  test->add_option("--op", o.op,
                   "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather, "
                   "scatter, send_recv, all");
  test->add_option("--type", o.type, "f64, f32, f16, bf16, e4m3, e5m2, i32, i64, all");
  test->add_option("--redop", o.redop, "sum, prod, min, max, avg, bit_and, bit_or, bit_xor, all");
  test->add_option("--bytes", o.bytes, "From and to, as 1K:64M: of the longer of input and result");
  test->add_option("--factor", o.factor, "From one size to the next")->check(CLI::Range(2, 1024));
  test->add_option("--algorithm", o.algorithm,
                   "Of all_reduce: automatic, push, pull, two_shot, ring");
  test->add_option("--in-place", o.in_place, "Results over the input: both ways, yes, no")
      ->check(CLI::IsMember({"both", "yes", "no"}));
  test->add_option("--root", o.root, "Of those that have one")->check(integer("a rank"));
  test->add_option("--iterations", o.iterations, "So many calls are timed; 0: only tested")
      ->check(CLI::Range(0, 1'000'000));
  test->add_flag("--uneven", o.uneven,
                 "Ranks' parts differ, by as many bytes in all: all_gather_v and so on");
  test->add_flag("--symmetric", o.symmetric, "Input and result lie in the symmetric heap");
  test->add_option("--device", o.device, "cpu, cuda, cuda:N, auto");
  test->add_option("-t,--threads", o.threads, "Ranks are so many threads of this process")
      ->check(CLI::Range(1, 64));
  test->add_flag_callback(
      "--no-peer", [&o] { o.peer = false; },
      "Do not measure another library beside it: MPI on a CPU, NCCL where each rank has a GPU");
}

void add_tune(CLI::App& app, tool::tune_options& o) {
  CLI::App* tune = app.add_subcommand(
      "tune", "Measure all_reduce's algorithms, and write the table by which collectives choose");
  tune->add_option("--ranks", o.ranks, "For so many (2, 4 and 8); may be given several times")
      ->check(CLI::Range(2, 64));
  tune->add_option("--device", o.device, "cpu, cuda, cuda:N, auto");
  tune->add_option("--out", o.out,
                   "The file (where collectives look for it, see CROSSWARP_TUNING)");
  tune->add_flag("--quick", o.quick, "About a quarter of the samples");
  tune->add_flag("--times", o.times, "Show what was measured");
  tune->add_flag("--replace", o.replace,
                 "Write a new table in place of the file, also where that is none; else what it "
                 "says of other devices and ranks stays");
}

void add_graph(CLI::App& app, tool::graph_options& o) {
  CLI::App* graph = app.add_subcommand(
      "graph",
      "Run a graph program on all ranks; under crosswarp run, or as threads; exit "
      "code 1 when a result is wrong");
  graph->add_option("program", o.program, "bfs, sssp, pr, cc")
      ->required()
      ->check(CLI::IsMember({"bfs", "sssp", "pr", "cc"}));
  graph->add_option("file", o.file,
                    "The graph: .mtx, .el, .wel, .txt, .graph, .gr, or .csr as --save writes it");
  graph->add_option("--generate", o.generate, "Instead of a file: kron, uniform, grid")
      ->check(CLI::IsMember({"kron", "uniform", "grid"}));
  graph->add_option("--scale", o.scale, "So many vertices, as a power of two")
      ->check(CLI::Range(0, 31));
  graph->add_option("--degree", o.degree, "Edges drawn for each vertex; not for grids")
      ->check(CLI::Range(0, 1024));
  graph->add_option("--seed", o.seed, "Of the graph, of lengths that it lacks, and of sources");
  graph->add_flag("--symmetrise", o.symmetrise,
                  "Add the other direction of edges that are not there in both (cc always does)");
  graph->add_option("--ranks", o.ranks, "Threads as ranks (2), unless a launcher started them")
      ->check(CLI::Range(1, 64));
  graph->add_option("--device", o.device, "cpu, cuda, cuda:N, auto");
  graph->add_option("--trials", o.trials, "How often")->check(CLI::Range(1, 1'000'000));
  graph->add_option("--source", o.source, "Of bfs and sssp; without it another one each time");
  graph->add_option("--delta", o.delta,
                    "Of sssp: how much farther than the nearest paths others are followed");
  graph
      ->add_option("--partition", o.partition,
                   "Each rank gets as many edges, as many vertices, or what METIS says")
      ->check(CLI::IsMember({"edges", "vertices", "metis"}));
  graph
      ->add_option("--route", o.route,
                   "How items of worklists go: direct, ring, or nodes, by one rank of each "
                   "machine; this and the next two make it a worklist")
      ->check(CLI::IsMember({"direct", "ring", "nodes"}));
  graph->add_option("--queue", o.queue, "Places of each worker's queue, a power of two");
  graph->add_option("--spill", o.spill, "Items that each worker may keep when queues are full");
  graph
      ->add_option("--method", o.method,
                   "How ranks work together: in rounds, by a worklist, or automatic: in rounds "
                   "where all are mapped")
      ->check(CLI::IsMember({"automatic", "rounds", "worklist"}));
  graph
      ->add_option("--blocks", o.blocks,
                   "Blocks of each rank's kernel: on a CPU (1) threads that work for it")
      ->check(CLI::Range(1, 1024));
  graph->add_option("--threads", o.threads, "That make the graph")->check(CLI::Range(1, 1024));
  graph->add_flag("--verify", o.verify, "Compare each result with a serial program's");
  graph->add_option("--out", o.out, "Write the last result to this file, a line for each vertex");
  graph->add_option("--save", o.save, "Write the graph to this file, which is read fast");
}

void add_tour(CLI::App& app, tool::tour_options& o) {
  CLI::App* tour = app.add_subcommand(
      "tour", "Show every module at work, verified and measured (roughly, as bench --quick does)");
  tour->add_option("--device", o.device,
                   "cpu, cuda, cuda:N, or auto: the CPU, and a GPU if there is one");
  tour->add_option("--report", o.report, "The page to write");
}

void add_bench_rank(CLI::App& app, tool::rank_options& o) {
  CLI::App* rank = app.add_subcommand("bench-rank", "")->group("");  // hidden
  rank->add_option("name", o.name)->required();
  rank->add_option("answers", o.answers);
  rank->add_flag("--quick", o.quick);
  rank->add_option("--engine", o.engine);
  rank->add_option("--scope", o.scope);
  rank->add_option("--op", o.op);
  rank->add_option("--from", o.bytes_from);
  rank->add_option("--to", o.bytes_to);
}

/// `run OPTIONS [--] PROGRAM ARGUMENTS`: what comes from the program on is the program's, whatever
/// it looks like. Takes it off `words` and returns it; leaves one word for the parser to see.
std::vector<std::string> split_command(std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") return {};
  constexpr std::string_view with_value[] = {"-n",       "--ranks", "--nodes",
                                             "--device", "--heap",  "--trace"};
  std::size_t i = 1;
  while (i < words.size() && words[i].starts_with("-") && words[i] != "--") {
    const bool takes =
        std::find(std::begin(with_value), std::end(with_value), words[i]) != std::end(with_value);
    i += takes ? 2 : 1;
  }
  if (i >= words.size()) return {};
  const auto program = words.begin() + static_cast<std::ptrdiff_t>(i + (words[i] == "--" ? 1 : 0));
  std::vector<std::string> command(program, words.end());
  words.resize(i);
  if (!command.empty()) words.emplace_back("program");
  return command;
}

/// The options that a subcommand has.
std::string options_of(const CLI::App& command) {
  std::string all;
  for (const CLI::Option* o : command.get_options()) {
    if (o->get_lnames().empty() || o->get_lnames().front() == "help") continue;
    all += (all.empty() ? "--" : ", --") + o->get_lnames().front();
  }
  return all;
}

/// What is wrong with the command line, in one line.
std::string complaint(const CLI::App& app, const CLI::ParseError& e) {
  const auto chosen = app.get_subcommands();
  const std::string command = chosen.empty() ? "" : chosen.front()->get_name();
  std::string what = e.what();
  // A word that nobody knows says more than what the parser missed because of it.
  if (const auto unknown = app.remaining(true); !unknown.empty()) {
    const std::string& word = unknown.front();
    const char* kind = word.starts_with("-") ? "option"
                       : chosen.empty()      ? "subcommand"
                                             : "argument";
    what = fmt::format("unknown {} '{}'", kind, word);
    if (word.starts_with("-") && !chosen.empty()) {
      what += fmt::format("; there are {}", options_of(*chosen.front()));
    }
  }
  return command.empty() ? what + "; see crosswarp --help"
                         : fmt::format("{0}: {1}; see crosswarp {0} --help", command, what);
}

/// Of variables that nobody reads: once, whatever this command starts.
void warn_of_variables(const CLI::App& app) {
  if (app.got_subcommand("doctor")) return;                     // finds them
  if (crosswarp::options::read("CROSSWARP_BOOTSTRAP")) return;  // the launcher has told them
  for (const std::string& line : crosswarp::options::complaints_about_variables()) {
    fmt::print(stderr, "crosswarp: {}\n", line);
  }
  if (app.got_subcommand("run")) return;  // they may be the program's
  for (const std::string& name : crosswarp::options::unknown_variables()) unsetenv(name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Crosswarp: communication that starts inside kernels", "crosswarp");
  app.require_subcommand(1);
  app.set_version_flag("--version", CROSSWARP_VERSION);
  tool::run_options run;
  tool::info_options info;
  add_run(app, run);
  add_info(app, info);
  tool::doctor_options doctor;
  add_doctor(app, doctor);
  tool::trace_options trace;
  add_trace(app, trace);
  tool::bench_options bench;
  tool::rank_options rank;
  add_bench(app, bench);
  tool::tour_options tour;
  add_tour(app, tour);
  tool::coll_test_options coll_test;
  add_coll_test(app, coll_test);
  tool::tune_options tune;
  add_tune(app, tune);
  tool::graph_options graph;
  add_graph(app, graph);
  add_bench_rank(app, rank);
  std::vector<std::string> words(argv + 1, argv + argc);
  run.command = split_command(words);
  std::reverse(words.begin(), words.end());  // as the parser wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // help or version
    fmt::print(stderr, "crosswarp: {}\n", complaint(app, e));
    return 2;
  }
  warn_of_variables(app);
  try {
    if (app.got_subcommand("run")) return tool::run(run);
    if (app.got_subcommand("info")) return tool::info(info);
    if (app.got_subcommand("doctor")) return tool::doctor(doctor);
    if (app.got_subcommand("trace")) return tool::trace(trace);
    if (app.got_subcommand("tour")) return tool::tour(tour);
    if (app.got_subcommand("bench")) return tool::bench(bench);
    if (app.got_subcommand("coll-test")) return tool::test_collectives(coll_test);
    if (app.got_subcommand("tune")) return tool::tune(tune);
    if (app.got_subcommand("graph")) return tool::run_graph(graph);
    if (app.got_subcommand("bench-rank")) return tool::bench_rank(rank);
  } catch (const std::exception& e) {
    fmt::print(stderr, "crosswarp: {}\n", e.what());
    return 2;
  }
  return 0;
}
