// crosswarp info: what this machine has and what this build can use.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#if CROSSWARP_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "coll/tuning.hpp"
#include "commands.hpp"
#include "crosswarp/device_ref.hpp"
#include "crosswarp/graph.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/rdma.hpp"
#include "crosswarp/schedule.hpp"
#include "crosswarp/world.hpp"
#include "doctor/probe.hpp"
#include "socket/engine.hpp"

namespace crosswarp::tool {
namespace {

using nlohmann::json;

json topology() {
#if CROSSWARP_HAVE_HWLOC
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return nullptr;
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  json result = nullptr;
  if (hwloc_topology_load(t) == 0) {
    const auto count = [&](hwloc_obj_type_t type) { return hwloc_get_nbobjs_by_type(t, type); };
    result = {{"packages", count(HWLOC_OBJ_PACKAGE)},  {"numa_nodes", count(HWLOC_OBJ_NUMANODE)},
              {"cores", count(HWLOC_OBJ_CORE)},        {"threads", count(HWLOC_OBJ_PU)},
              {"l3_caches", count(HWLOC_OBJ_L3CACHE)}, {"devices", json::array()}};
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(t, o)) != nullptr;) {
      result["devices"].push_back(o->name == nullptr ? "?" : o->name);
    }
  }
  hwloc_topology_destroy(t);
  return result;
#else
  return nullptr;
#endif
}

/// How each rank of the job reaches each other one, when `crosswarp run` started this process.
json paths(world& w) {
  std::string mine;
  for (int r = 0; r < w.size(); ++r) mine += w.path_to(r) + (r + 1 < w.size() ? "\n" : "");
  json all = json::array();
  for (const auto& row : w.allgather(std::as_bytes(std::span(mine)))) {
    json from = json::array();
    std::istringstream lines(std::string(reinterpret_cast<const char*>(row.data()), row.size()));
    for (std::string path; std::getline(lines, path);) from.push_back(path);
    all.push_back(from);
  }
  return all;
}

/// What can carry out the proxy's commands. Starts processes: before devices start threads.
json engines() {
  json all = json::array({{{"name", "local"}, {"found", true}, {"where_or_why", "built in"}}});
  const std::pair<const char*, bool> modules[] = {{"ucx", CROSSWARP_HAVE_UCX == 1},
                                                  {"mpi", CROSSWARP_HAVE_MPI == 1}};
  for (const auto& [name, built] : modules) {
    const doctor_impl::engine_facts f = doctor_impl::probe_engine(name, built);
    const std::string prefix = f.crashed              ? "cannot be loaded: "
                               : !f.there && !f.built ? "not in this build: "
                                                      : "";
    all.push_back({{"name", name}, {"found", f.there}, {"where_or_why", prefix + f.where_or_why}});
  }
  return all;
}

/// Soft devices, then those of the machine.
json rdma_devices() {
  json all = json::array();
  for (const rdma::adapter& a : rdma::context().devices()) {
    json ports = json::array();
    for (int i = 1; i <= a.ports(); ++i) {
      ports.push_back({{"number", i},
                       {"state", a.is_active(i) ? "ACTIVE" : "DOWN"},
                       {"link", "none"},
                       {"gids", json::array()}});
    }
    all.push_back({{"name", a.name()}, {"backends", {"soft"}}, {"ports", ports}});
  }
  const doctor_impl::rdma_facts f = doctor_impl::probe_rdma();
  for (const std::string& name : f.devices) {
    json backends = json::array({"verbs"});
    if (std::find(f.mlx5.begin(), f.mlx5.end(), name) != f.mlx5.end()) backends.push_back("mlx5");
    json ports = json::array();
    for (const doctor_impl::rdma_port& p : f.ports) {
      if (p.device != name) continue;
      json gids = json::array();
      for (const doctor_impl::rdma_gid& g : p.gids) {
        gids.push_back({{"index", g.index}, {"gid", g.gid}, {"type", g.type}});
      }
      ports.push_back({{"number", p.number}, {"state", p.state}, {"link", p.link}, {"gids", gids}});
    }
    all.push_back({{"name", name}, {"backends", backends}, {"ports", ports}});
  }
  return all;
}

/// The engines of sockets, and which of them a service has.
json socket_engines() {
  json j = {{"engine", nullptr}, {"wrong", nullptr}, {"no_io_uring_because", nullptr}};
  try {
    (void)socket_impl::make_uring_engine();
  } catch (const error& e) {
    j["no_io_uring_because"] = e.what();
  }
  try {
    j["engine"] = socket_impl::make_engines(socket::engine_kind::automatic, 1).name;
  } catch (const error& e) {
    j["wrong"] = e.what();
  }
  return j;
}

/// By what collectives choose here; see `crosswarp tune`.
json tuning() {
  json j = {{"file", nullptr}, {"lines", json::array()}, {"wrong", nullptr}};
  const auto file = coll_impl::tuning_file_to_read();
  if (!file) return j;
  j["file"] = *file;
  try {
    for (const coll_impl::tuned& t : coll_impl::read_tuning(*file)) {
      j["lines"].push_back({{"device", t.device},
                            {"ranks", t.ranks},
                            {"push", t.values.push},
                            {"pull", t.values.pull},
                            {"block", t.values.block},
                            {"long_block", t.values.long_block}});
    }
  } catch (const error& e) {
    j["wrong"] = e.what();
  }
  return j;
}

json gather() {
  json j;
  j["engines"] = engines();
  j["version"] = CROSSWARP_VERSION;
  j["compiler"] = CROSSWARP_COMPILER;
  j["devices"] = json::array();
  for (const device_info& d : devices()) {
    j["devices"].push_back({{"name", d.device.name()},
                            {"description", d.description},
                            {"multiprocessors", d.multiprocessors},
                            {"memory_bytes", d.memory_bytes}});
  }
  j["no_cuda_because"] =
      cuda_absence_reason().empty() ? json(nullptr) : json(cuda_absence_reason());
  j["topology"] = topology();
  const char* const means =
      CROSSWARP_HAVE_CUDA == 1 ? "same process; memfd; CUDA VMM, CUDA IPC" : "same process; memfd";
  // Capabilities as data: what a path can do, whatever the device.
  j["transports"] = json::array({{{"name", "mapped"},
                                  {"between", "ranks of one machine"},
                                  {"loads_and_stores", true},
                                  {"atomics", true},
                                  {"gpu_memory", cuda_device_count() > 0},
                                  {"means", means}}});
  j["rdma"] = rdma_devices();
  j["sockets"] = socket_engines();
  j["tuning"] = tuning();
  j["features"] = {{"cuda", CROSSWARP_HAVE_CUDA == 1},      {"fibers", CROSSWARP_HAVE_FIBERS == 1},
                   {"pmix", CROSSWARP_HAVE_PMIX == 1},      {"topology", CROSSWARP_HAVE_HWLOC == 1},
                   {"checked", CROSSWARP_CHECKED == 1},     {"schedules", schedule::available()},
                   {"io_uring", CROSSWARP_HAVE_URING == 1}, {"metis", graph::has_metis()}};
  return j;
}

void print_environment(bool as_json) {
  json j = json::array();
  if (!as_json) fmt::print("{:<22} {:<10} {}\n", "variable", "default", "meaning");
  for (const options::setting& s : options::all()) {
    const auto value = options::read(s.name);
    j.push_back({{"name", s.name},
                 {"value", value ? json(*value) : json(nullptr)},
                 {"default", s.fallback},
                 {"meaning", s.meaning}});
    if (!as_json) {
      fmt::print("{:<22} {:<10} {}{}\n", s.name, s.fallback, s.meaning,
                 value ? fmt::format("  [set: {}]", *value) : "");
    }
  }
  if (as_json) fmt::print("{}\n", j.dump(2));
}

/// "1 core", "2 cores".
std::string counted(const json& number, const char* thing) {
  return fmt::format("{} {}{}", number.get<int>(), thing, number == 1 ? "" : "s");
}

/// The features of this build that are on, or those that are off.
std::string features(const json& j, bool on) {
  std::string out;
  for (const auto& [name, value] : j["features"].items()) {
    if (value == on) out += (out.empty() ? "" : ", ") + name;
  }
  return out.empty() ? "-" : out;
}

void print_rdma(const json& all) {
  fmt::print("\nrdma devices\n");
  for (const json& d : all) {
    std::string backends;
    for (const json& b : d["backends"]) {
      backends += (backends.empty() ? "" : ", ") + b.get<std::string>();
    }
    for (const json& p : d["ports"]) {
      fmt::print("  {:<8} port {} {}, backend {}\n", d["name"].get<std::string>(),
                 p["number"].get<int>(), p["state"].get<std::string>(), backends);
      for (const json& g : p["gids"]) {
        fmt::print("           gid {} {} {}\n", g["index"].get<int>(), g["gid"].get<std::string>(),
                   g["type"].get<std::string>());
      }
    }
  }
}

void print_sockets(const json& s) {
  const json& why = s["no_io_uring_because"];
  fmt::print("\nengines of sockets\n  epoll    built in\n  io_uring {}\n",
             why.is_null() ? "found" : "not found: " + why.get<std::string>());
  fmt::print("  {}\n", s["wrong"].is_null() ? "in use: " + s["engine"].get<std::string>()
                                            : "wrong, so that no service can be made: " +
                                                  s["wrong"].get<std::string>());
}

void print_tuning(const json& t, const json& devices) {
  fmt::print("\ntuning of collectives\n");
  if (t["file"].is_null()) {
    const auto file = coll_impl::tuning_file();
    fmt::print("  the defaults: {}\n",
               file ? "there is no " + *file + "; crosswarp tune writes it"
                    : std::string("CROSSWARP_TUNING is none, or HOME is not set"));
    return;
  }
  if (!t["wrong"].is_null()) {
    fmt::print("  wrong, so that no communicator can be made: {}\n", t["wrong"].get<std::string>());
    return;
  }
  fmt::print("  {}\n", t["file"].get<std::string>());
  for (const json& d : devices) {
    std::string ranks;
    for (const json& l : t["lines"]) {
      if (l["device"] != d["description"]) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", l["ranks"].get<int>());
    }
    fmt::print("  {:<8} {}\n", d["name"].get<std::string>(),
               ranks.empty() ? "the defaults: it is not in there"
                             : "for " + ranks + " ranks; else the defaults");
  }
}

void print(const json& j) {
  fmt::print("crosswarp {}\n\ndevices\n", j["version"].get<std::string>());
  for (const json& d : j["devices"]) {
    fmt::print("  {:<8} {}, {}, {}\n", d["name"].get<std::string>(),
               d["description"].get<std::string>(),
               counted(d["multiprocessors"], d["name"] == "cpu" ? "core" : "multiprocessor"),
               options::print_bytes(d["memory_bytes"].get<std::size_t>()));
  }
  if (!j["features"]["cuda"].get<bool>()) {
    fmt::print("  no GPU:  built without CUDA (CROSSWARP_CUDA=OFF or no nvcc)\n");
  } else if (!j["no_cuda_because"].is_null()) {
    fmt::print("  no GPU:  built with CUDA, but none is found: {}\n",
               j["no_cuda_because"].get<std::string>());
  }
  if (const json& t = j["topology"]; !t.is_null()) {
    fmt::print("\ntopology\n  {}, {}, {}, {}, {}\n", counted(t["packages"], "package"),
               counted(t["numa_nodes"], "NUMA node"), counted(t["cores"], "core"),
               counted(t["threads"], "thread"), counted(t["l3_caches"], "L3 cache"));
  }
  fmt::print("\ntransports\n");
  for (const json& t : j["transports"]) {
    fmt::print("  {:<8} {}: {}\n", t["name"].get<std::string>(), t["between"].get<std::string>(),
               t["means"].get<std::string>());
  }
  fmt::print("\nengines of the proxy\n");
  for (const json& e : j["engines"]) {
    fmt::print("  {:<8} {}{}\n", e["name"].get<std::string>(),
               e["found"].get<bool>() ? "" : "not found: ", e["where_or_why"].get<std::string>());
  }
  print_rdma(j["rdma"]);
  print_sockets(j["sockets"]);
  print_tuning(j["tuning"], j["devices"]);
  if (j.contains("paths")) {
    fmt::print("\npaths, from the rank in front to ranks 0, 1, ...\n");
    int rank = 0;
    for (const json& from : j["paths"]) {
      fmt::print("  {:<4}", rank++);
      for (const json& path : from) fmt::print(" {:<13}", path.get<std::string>());
      fmt::print("\n");
    }
  }
  fmt::print("\nbuild\n  compiler {}\n  with     {}\n  without  {}\n",
             j["compiler"].get<std::string>(), features(j, true), features(j, false));
}

}  // namespace

int info(const info_options& o) {
  if (o.environment) {
    print_environment(o.json);
    return 0;
  }
  json j = gather();
  if (options::read("CROSSWARP_BOOTSTRAP")) {
    world w;
    j["paths"] = paths(w);
    if (w.rank() != 0) return 0;  // one answer is enough
  }
  if (o.json) {
    fmt::print("{}\n", j.dump(2));
  } else {
    print(j);
  }
  return 0;
}

}  // namespace crosswarp::tool
