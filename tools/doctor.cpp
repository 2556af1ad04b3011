// crosswarp doctor: what is wrong on this machine, and what to do about it.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "crosswarp/error.hpp"
#include "doctor/judge.hpp"
#include "doctor/probe.hpp"
#include "doctor/reach.hpp"

namespace crosswarp::tool {
namespace {

using doctor_impl::finding;
using doctor_impl::severity;
using nlohmann::json;

/// For so many ranks there should be room when nobody says how many there will be.
constexpr int usual_ranks = 64;

bool asks_for_gpu(const doctor_impl::environment_facts& e) {
  const auto device = e.set.find("CROSSWARP_DEVICE");
  return device != e.set.end() && device->second.starts_with("cuda");
}

std::vector<finding> examine(int ranks) {
  // What starts processes comes first: CUDA starts threads.
  const auto peeking = doctor_impl::probe_peeking();
  const auto ucx = doctor_impl::probe_engine("ucx", CROSSWARP_HAVE_UCX == 1);
  const auto mpi = doctor_impl::probe_engine("mpi", CROSSWARP_HAVE_MPI == 1);
  const auto cuda = doctor_impl::probe_cuda();
  const auto environment = doctor_impl::probe_environment();
  const auto memory = doctor_impl::probe_memory();
  const auto rdma = doctor_impl::probe_rdma();
  const auto network = doctor_impl::probe_network();
  const auto engine = environment.set.find("CROSSWARP_ENGINE");
  const auto asked = [&](const char* name) {
    return engine != environment.set.end() && engine->second == name;
  };

  std::vector<finding> all;
  const auto add = [&](finding f) { all.push_back(std::move(f)); };
  const auto add_all = [&](std::vector<finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
  };
  add(judge_driver(cuda, asks_for_gpu(environment)));
  add_all(judge_capability(cuda));
  add(judge_mps(doctor_impl::probe_mps(), cuda));
  add(judge_peer_access(cuda));
  add(judge_cuda_settings(environment, cuda));
  add(judge_cores(doctor_impl::probe_cores(), ranks));
  add(judge_open_files(doctor_impl::probe_open_files(), ranks > 0 ? ranks : usual_ranks));
  add(judge_locked_memory(memory, rdma));
  add(judge_memfd(memory));
  add(judge_shm(memory));
  add(judge_mappings(memory));
  add(judge_overcommit(memory));
  add(judge_peeking(peeking));
  add(judge_engine(ucx, asked("ucx")));
  add(judge_ucx_gpu(ucx, cuda));
  add(judge_engine(mpi, asked("mpi")));
  add(judge_mpirun(environment, mpi));
  add(judge_rdma(rdma));
  add(judge_gpu_rdma(rdma, cuda));
  add(judge_loopback(network));
  add(judge_host_name(network));
  add_all(judge_variables(environment));
  add_all(judge_settings(environment));
  return all;
}

std::vector<finding> listen(const doctor_options& o) {
  const auto ready = [&](const std::string& address) {
    // Not between the findings: those may be for a program.
    fmt::print(o.json ? stderr : stdout,
               "listening for {} s; on the other machine: crosswarp doctor --reach {}\n",
               o.timeout.value_or(60), address);
    std::fflush(o.json ? stderr : stdout);
  };
  return judge_answer(
      doctor_impl::answer_reach(*o.listen, std::chrono::seconds(o.timeout.value_or(60)), ready));
}

void print_json(const std::vector<finding>& all) {
  json j = json::array();
  for (const finding& f : all) {
    j.push_back(
        {{"area", f.area}, {"severity", to_string(f.how)}, {"seen", f.seen}, {"remedy", f.remedy}});
  }
  // A variable's name may be any bytes.
  fmt::print("{}\n", j.dump(2, ' ', false, json::error_handler_t::replace));
}

void print(const std::vector<finding>& all) {
  std::size_t width = 0;
  for (const finding& f : all) width = std::max(width, f.area.size());
  const auto count = [&](severity s) {
    return std::count_if(all.begin(), all.end(), [&](const finding& f) { return f.how == s; });
  };
  for (const finding& f : all) {
    fmt::print("{:<8} {:<{}}  {}\n", to_string(f.how), f.area, width, f.seen);
    if (!f.remedy.empty()) fmt::print("{:<8} {:<{}}  -> {}\n", "", "", width, f.remedy);
  }
  const auto problems = count(severity::problem);
  const auto hints = count(severity::hint);
  fmt::print("\n{} problem{}, {} hint{}\n", problems, problems == 1 ? "" : "s", hints,
             hints == 1 ? "" : "s");
}

void check_options(const doctor_options& o) {
  const auto refuse = [](const char* option, int value, const char* range) {
    throw error(errc::invalid_argument, option, fmt::format("{}: {}", value, range));
  };
  if (o.ranks < 0 || o.ranks > 4096) refuse("--ranks", o.ranks, "from 1 to 4096");
  if (o.listen && (*o.listen < 0 || *o.listen > 65535)) {
    refuse("--listen", *o.listen, "from 0 (any) to 65535");
  }
  if (o.timeout && (*o.timeout < 1 || *o.timeout > 86400)) {
    refuse("--timeout", *o.timeout, "from 1 second to a day of them");
  }
}

}  // namespace

int doctor(const doctor_options& o) {
  check_options(o);
  const std::vector<finding> all =
      o.listen ? listen(o)
      : !o.reach.empty()
          ? judge_reach(doctor_impl::reach(o.reach, std::chrono::seconds(o.timeout.value_or(5))))
          : examine(o.ranks);
  o.json ? print_json(all) : print(all);
  return doctor_impl::exit_code(all);
}

}  // namespace crosswarp::tool
