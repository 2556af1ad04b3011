#include "crosswarp/world.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <thread>

#include "core/log.hpp"
#include "core/variables.hpp"
#include "crosswarp/options.hpp"
#include "exec/cpu/executor.hpp"
#include "memory/self_test.hpp"
#include "proxy/load.hpp"
#include "proxy/staged.hpp"
#include "socket.hpp"
#include "state.hpp"
#include "trace/traced_engine.hpp"

namespace crosswarp {

proxy_options proxy_options::from_environment() {
  proxy_options o;
  const auto one_of = [](const char* variable, std::initializer_list<const char*> words) {
    auto v = options::read(variable);
    if (!v || std::find(words.begin(), words.end(), *v) != words.end()) return v;
    std::string all;
    for (const char* w : words) all += (all.empty() ? "" : ", ") + std::string(w);
    throw error(errc::invalid_argument, variable, "'" + *v + "' is none of " + all);
  };
  if (const auto v = one_of("CROSSWARP_PATH", {"auto", "mapped", "proxy", "rdma"})) {
    o.path = *v == "mapped"  ? path_choice::mapped
             : *v == "proxy" ? path_choice::proxy
             : *v == "rdma"  ? path_choice::rdma
                             : path_choice::automatic;
  }
  if (const auto v = options::read("CROSSWARP_ENGINE")) o.engine = *v;
  constexpr long most = 65536;
  if (const auto v = options::read_integer("CROSSWARP_QUEUES")) {
    if (*v < 0 || *v > most) throw error(errc::invalid_argument, "CROSSWARP_QUEUES", "0 to 65536");
    o.queues = static_cast<int>(*v);
  }
  if (const auto v = options::read_integer("CROSSWARP_QUEUE_DEPTH")) {
    if (*v < 2 || *v > most || (*v & (*v - 1)) != 0) {
      throw error(errc::invalid_argument, "CROSSWARP_QUEUE_DEPTH",
                  "a power of two from 2 to 65536");
    }
    o.depth = static_cast<int>(*v);
  }
  if (const auto v = one_of("CROSSWARP_QUEUE_KIND", {"pinned", "device"})) {
    o.queue_kind = *v == "device" ? memory_kind::device : memory_kind::pinned;
  }
  if (const auto v = one_of("CROSSWARP_STAGING", {"never", "always"})) o.staged = *v == "always";
  if (const auto v = one_of("CROSSWARP_PROGRESS", {"thread", "user"})) o.thread = *v == "thread";
  return o;
}

world_options world_options::from_environment() {
  world_options o;
  if (const auto v = options::read("CROSSWARP_DEVICE")) o.device = device_ref::parse(*v);
  if (const auto v = options::read("CROSSWARP_HEAP")) {
    o.heap_bytes = options::parse_bytes(*v, "CROSSWARP_HEAP");
  }
  if (const auto v = options::read("CROSSWARP_HEAP_KIND")) {
    if (*v != "device" && *v != "pinned") {
      throw error(errc::invalid_argument, "CROSSWARP_HEAP_KIND",
                  "'" + *v + "' is neither device nor pinned");
    }
    o.heap_kind = *v == "pinned" ? memory_kind::pinned : memory_kind::device;
  }
  constexpr const char* seconds = "a whole number of seconds, from 1 to 31536000 (a year)";
  if (const auto v = options::read_integer("CROSSWARP_TIMEOUT", seconds)) {
    constexpr long year = 365L * 24 * 3600;
    if (*v < 1 || *v > year) {
      throw error(errc::invalid_argument, "CROSSWARP_TIMEOUT",
                  "'" + std::to_string(*v) + "' is not " + seconds);
    }
    o.timeout = std::chrono::seconds(*v);
  }
  o.proxy = proxy_options::from_environment();
  if (const auto v = options::read_integer("CROSSWARP_NODES")) o.nodes = static_cast<int>(*v);
  if (const auto v = options::read_integer("CROSSWARP_SELF_TEST")) o.self_test = *v != 0;
  (void)log::from_environment();  // read where it is needed; refused here
  return o;
}

namespace world_impl {
namespace {

/// The heap's first bytes are the library's own: the world's barrier and the self-test's lines.
std::size_t reserved_bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return (device::barrier::lines(ranks) + n) * sizeof(device::signal_line);
}

std::size_t whole_heap(const world_options& o, int ranks) {
  if (o.heap_bytes > std::numeric_limits<std::ptrdiff_t>::max() / 2) {
    throw error(errc::out_of_memory, "symmetric heap", options::print_bytes(o.heap_bytes));
  }
  return reserved_bytes(ranks) + o.heap_bytes;
}

std::uint32_t next_owner() {
  static std::atomic<std::uint32_t> count{1};
  return count.fetch_add(1);
}

}  // namespace

state::state(const world_options& o, std::shared_ptr<bootstrap> b, std::shared_ptr<launch_gather> t)
    : options(o),
      boot(std::move(b)),
      faults(std::make_shared<fault_sink>(o.device)),
      who(find_members(*boot, o.nodes, o.timeout)),
      owner(next_owner()),
      stream(o.device),
      trace(world_trace::begin(o.device, *boot)),
      blocks(reserved_bytes(boot->size()), whole_heap(o, boot->size())),
      together(std::move(t)) {
  const std::uint64_t began = device::trace_ticks();
  if (boot->rank() == 0) crosswarp::options::log_unknown_variables(0);
  stream.backend().set_owner(owner);
  // This rank's own thread waits, one at a time.
  stream.watch_sync(
      [this] {
        boot->set_waiting(true);
        sync_began = recorder() != nullptr ? device::trace_ticks() : 0;
      },
      [this] {
        note_call(trace::host_call::sync, sync_began);
        boot->set_waiting(false);
        check("stream");
      });
  if (trace) {
    stream.watch_launch([this](crosswarp::stream& on) { trace->events().begin_kernel(on); },
                        [this](crosswarp::stream& on) { trace->events().end_kernel(on); });
  }
  boot->on_fault([sink = faults](const fault& f) { sink->tell(f); });
  if (o.device.kind() == device_kind::cpu) {
    announced = boot->in_process() ? 1 : static_cast<int>(who.locals.size());
    exec::cpu::announce_load(announced);
  }
  lay_out_heap();
  faults->set(proxy.get());
  if (proxy) exec::cpu::set_helper(owner, proxy.get());
  note_call(trace::host_call::start, began);
  if (log::on(log::level::debug)) {
    log::debug(boot->rank(), "world made: ranks ", boot->size(), ", nodes ", who.nodes, ", device ",
               o.device.name(), ", heap ", crosswarp::options::print_bytes(o.heap_bytes));
  }
}

void fault_sink::tell(const fault& f) {
  // Relaxed: kernels only learn from it that they need not wait any longer.
  device::system_atomic<fault_word>(words.data()[0])
      .store(make_fault(f.what, f.rank), device::order::relaxed);
  const std::scoped_lock lock(mutex);
  heard = f;
  pass_on();
}

void fault_sink::set(crosswarp::proxy* p) {
  const std::scoped_lock lock(mutex);
  proxy = p;
  pass_on();
}

void fault_sink::pass_on() {
  if (proxy == nullptr || heard.what == status::ok) return;
  if (heard.what == status::peer_lost && heard.rank >= 0) {
    proxy->lose(heard.rank);
  } else {
    proxy->refuse(heard.what);
  }
}

state::~state() {
  try {
    stream.backend().sync();  // kernels lend their threads to the proxy
  } catch (...) {
    // They failed, and nobody asked.
  }
  faults->set(nullptr);
  exec::cpu::set_helper(owner, nullptr);
  exec::cpu::announce_load(-announced);
  boot->leave();
  log::debug(boot->rank(), "world ended");
}

namespace {

bool wants_stats() {
  return crosswarp::options::read_integer("CROSSWARP_STATS").value_or(0) != 0;
}

}  // namespace

void state::lay_out_heap() {
  heap = mapped::map_new(request(), whole_heap(options, boot->size()));
  view.limits = {faults->words.data(), static_cast<std::uint64_t>(options.timeout.count()),
                 faults->words.data() + 1};
  if (trace) view.limits.trace = trace->events().kernels();
  start_proxy();
  peers = std::make_unique<peers_here>(table_of(*heap));
  const int rank = boot->rank();
  const int size = boot->size();
  const std::size_t lines = device::barrier::lines(size);
  view.rank = rank;
  view.size = size;
  view.peers = peers->view;
  if (trace || wants_stats()) {
    profile = std::make_unique<buffer<device::mapped_profile>>(options.device, 1);
    reset_stats();
    view.profile = profile->data();
  }
  if (proxy) view.proxy = device::proxy(proxy->memory(), view.limits);
  if (rdma) view.proxy = device::proxy(rdma->memory(), view.limits);
  view.all = device::barrier({view.peers, rank, 0, lines}, rank, size, view.limits);
  test_lines = {view.peers, rank, lines * sizeof(device::signal_line),
                static_cast<std::size_t>(size)};
}

peers_here state::table_of(const mapped::mapping& m) const {
  std::vector<device::peer> table;
  for (int r = 0; r < boot->size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != boot->rank() && by_proxy[i]) {
      table.push_back({nullptr, rdma ? device::path::rdma : device::path::proxy});
      continue;
    }
    std::byte* const base = m.base[i];
    table.push_back({base, base == nullptr     ? device::path::none
                           : r == boot->rank() ? device::path::self
                                               : device::path::mapped});
  }
  peers_here here{{options.device, std::span<const device::peer>(table)}, {}};
  here.view.all = here.table.data();
  here.view.reach = m.reach;
  // The longest run from the first that is mapped.
  const auto base = [&](int r) { return table[static_cast<std::size_t>(r)].base; };
  int& first = here.view.first;
  while (first < boot->size() && base(first) == nullptr) ++first;
  if (first == boot->size()) return here;
  here.view.even = base(first);
  here.view.count = 1;
  for (int r = first + 1; r < boot->size() && base(r) != nullptr; ++r) {
    const std::ptrdiff_t step = base(r) - base(r - 1);
    if (r == first + 1) here.view.distance = step;
    if (step != here.view.distance) break;
    ++here.view.count;
  }
  return here;
}

// ---- the proxy

namespace {

std::string choose_engine(const std::string& wanted, bool all_mapped) {
  if (wanted != "auto") return wanted;
  if (all_mapped) return "local";
  return proxy_impl::find_engine("ucx").there ? "ucx" : "";
}

/// As many queues as blocks run at once, unless told.
int queue_count(const world_options& o) {
  if (o.proxy.queues > 0) return o.proxy.queues;
  for (const device_info& d : devices()) {
    if (d.device.kind() == o.device.kind() && d.device.ordinal() == o.device.ordinal()) {
      return std::max(1, d.multiprocessors);
    }
  }
  return 1;
}

}  // namespace

/// Ranks that are not mapped, or all others when the options say so, are reached by commands.
void state::start_proxy() {
  const int size = boot->size();
  by_proxy.assign(static_cast<std::size_t>(size), false);
  const path_choice path = options.proxy.path;
  if (path == path_choice::rdma) return start_rdma();
  // The same on all ranks, so that all of them make an engine or none.
  if (path == path_choice::mapped || (path == path_choice::automatic && who.nodes == 1)) return;
  bool all_mapped = true;
  for (int r = 0; r < size; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const bool mapped = heap->base[i] != nullptr;
    all_mapped = all_mapped && mapped;
    by_proxy[i] = r == boot->rank() || path == path_choice::proxy || !mapped;
  }
  const std::string name =
      agree_on_engine(choose_engine(options.proxy.engine, who.nodes == 1 && all_mapped));
  if (name.empty()) {
    by_proxy.assign(by_proxy.size(), false);
    if (boot->rank() == 0) {
      log::warn(0, "ranks of different machines have no path: no engine ucx: ",
                proxy_impl::find_engine("ucx").where_or_why);
    }
    return;
  }
  if (name == "local" && !all_mapped) {
    throw error(errc::not_supported, "engine local",
                "it copies between mapped ranks, and not all of these are");
  }
  if (name == "local" && options.proxy.staged) {
    throw error(errc::not_supported, "engine local", "it stages nothing; see CROSSWARP_STAGING");
  }
  proxy_options o = options.proxy;
  o.queues = queue_count(options);
  o.thread = o.thread && options.device.scheduler() == nullptr;
  proxy_impl::engine_setup setup;
  setup.rank = boot->rank();
  setup.size = size;
  setup.meet = [this](bytes mine) { return boot->allgather(std::move(mine), options.timeout); };
  setup.reached = by_proxy;
  auto engine = proxy_impl::make_engine(name, options.device, setup);
  const bool on_host =
      options.device.kind() == device_kind::cpu || options.heap_kind == memory_kind::pinned;
  if (options.proxy.staged) {
    engine = proxy_impl::make_staged(std::move(engine), options.device, setup);
  } else if (!on_host && !engine->can().gpu_memory) {
    throw error(errc::not_supported, "engine " + name,
                "it cannot reach a GPU's memory: put the heap in host memory with "
                "CROSSWARP_HEAP_KIND=pinned, or let CROSSWARP_STAGING=always copy through it");
  }
  if (trace) engine = trace::make_traced(std::move(engine), trace->events());
  proxy = std::make_unique<crosswarp::proxy>(options.device, o, boot->rank(), size, by_proxy,
                                             std::move(engine), recorder());
  add_region(*heap, whole_heap(options, size), on_host);
  log::info(boot->rank(), "engine ", name, " carries out the proxy's commands to ",
            std::count(by_proxy.begin(), by_proxy.end(), true), " of ", size, " ranks");
}

/// All ranks are reached by entries.
void state::start_rdma() {
  const int size = boot->size();
  by_proxy.assign(static_cast<std::size_t>(size), true);
  const bool on_host =
      options.device.kind() == device_kind::cpu || options.heap_kind == memory_kind::pinned;
  if (!on_host) {
    throw error(errc::not_supported, "path rdma",
                "the soft NIC's atomics on a GPU's memory are not atomic to its kernels: put the "
                "heap in host memory with CROSSWARP_HEAP_KIND=pinned");
  }
  // All ranks of a process share a soft NIC, which has 4095 endpoints.
  constexpr int most = 2048;
  rdma_path::setup s;
  s.device = options.device;
  s.rank = boot->rank();
  s.size = size;
  s.queues = std::clamp(most / size / size, 1, queue_count(options));
  s.machines = who.nodes > 1;
  s.limits = view.limits;
  s.meet = [this](bytes mine) { return boot->allgather(std::move(mine), options.timeout); };
  rdma = std::make_unique<rdma_path>(s);
  add_region(*heap, whole_heap(options, size), on_host);
  log::info(boot->rank(), "entries for ", rdma->name(), " reach all ", size, " ranks");
}

/// All ranks take the same engine, or none starts.
std::string state::agree_on_engine(const std::string& mine) {
  const auto all = boot->allgather(packer().text(mine).take(), options.timeout);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string theirs = unpacker(all[r]).text();
    if (theirs == mine) continue;
    std::string why = "takes engine '" + theirs;
    why.append("', this rank '").append(mine).append("'; see CROSSWARP_ENGINE");
    throw error(errc::asymmetric, "proxy", why, static_cast<int>(r));
  }
  return mine;
}

std::uint16_t state::add_region(const mapped::mapping& m, std::size_t size, bool on_host) {
  if (rdma) return rdma->add_region(m.base[static_cast<std::size_t>(boot->rank())], size);
  if (!proxy) return 0;
  const std::uint16_t id = proxy->free_region();
  const proxy_impl::region_info mine{m.base[static_cast<std::size_t>(boot->rank())], size, on_host,
                                     m.base};
  constexpr std::uintptr_t word = 8;
  const bool aligned = reinterpret_cast<std::uintptr_t>(mine.base) % word == 0;
  const auto all = boot->allgather(
      packer().u64(size).u32(aligned ? 1 : 0).blob(proxy->offer_region(id, mine)).take(),
      options.timeout);
  std::vector<std::size_t> sizes;
  std::vector<bytes> offers;
  for (std::size_t r = 0; r < all.size(); ++r) {
    unpacker u(all[r]);
    sizes.push_back(u.u64());
    if (u.u32() == 0) {
      throw error(errc::invalid_argument, "registration", "memory is not aligned to 8 bytes",
                  static_cast<int>(r));
    }
    offers.push_back(u.blob());
  }
  proxy->install_region(id, mine, std::move(sizes), std::move(offers));
  return id;
}

void state::remove_region(std::uint16_t id) {
  if (proxy) proxy->remove_region(id);
  if (rdma) rdma->remove_region(id);
}

void state::check(const char* call) const {
  boot->check(call);
  if (const auto late = late_kernel()) throw *late;
}

std::optional<error> state::late_kernel() const {
  const fault_word late = device::system_atomic<fault_word>(faults->words.data()[1])
                              .exchange(0, device::order::relaxed);
  if (late == 0) return std::nullopt;
  return fault_status(late) == status::peer_lost
             ? error(errc::peer_lost, "kernel", "it did not answer", fault_rank(late))
             : error(errc::timeout, "kernel", "waited in vain", fault_rank(late));
}

void state::tell_swallowed(const char* call, bool told) const noexcept {
  if (told) return;
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& e) {
    log::error(boot->rank(), call, ": ", e.what());
  } catch (...) {
    log::error(boot->rank(), call, ": an unknown exception");
  }
}

void state::finish_commands() {
  const trace::span traced(recorder(), trace::host_call::finish);
  if (proxy) proxy->finish_all(options.timeout);
  if (rdma) rdma->finish(stream);
}

void state::finish_trace() {
  if (trace) trace->finish(*boot, proxy.get(), options.timeout);
}

void state::note_call(trace::host_call what, std::uint64_t began) noexcept {
  trace::recorder* const to = recorder();
  if (to == nullptr) return;
  trace::trace_record r;
  r.begin = began;
  r.end = device::trace_ticks();
  r.what = static_cast<std::uint8_t>(what);
  to->note(r);
}

std::vector<operation_stats> state::stats() const {
  std::vector<operation_stats> all;
  if (proxy) all = proxy->stats();
  if (rdma) all = rdma->stats();
  if (!profile) return all;
  const device::mapped_profile seen = profile->read().front();
  for (std::size_t i = 0; i < device::proxy_calls; ++i) {
    operation_stats s;
    s.name = std::string(proxy_impl::name_of(static_cast<device::proxy_call>(i))) + ", mapped";
    s.count = seen.by_call[i].calls;
    s.bytes = seen.by_call[i].bytes;
    s.mapped = true;
    all.push_back(std::move(s));
  }
  return all;
}

void state::reset_stats() {
  if (proxy) proxy->reset_stats();
  if (rdma) rdma->reset_stats();
  if (!profile) return;
  device::mapped_profile fresh{};
  if (trace) fresh.trace = trace->events().kernels();
  profile->write(std::span<const device::mapped_profile>(&fresh, 1));
}

/// Everybody's counters, added up, by rank 0 on stderr. Ranks of one process each show their own:
/// they do not end at one time.
void state::show_stats() {
  std::vector<operation_stats> sum = stats();
  std::string whose = "rank " + std::to_string(boot->rank());
  if (!boot->in_process()) {
    packer mine;
    for (const operation_stats& s : sum) {
      mine.u64(s.count).u64(s.bytes).u64(s.failures);
      mine.u64(static_cast<std::uint64_t>(s.waited_for_slot.count()));
      mine.u64(static_cast<std::uint64_t>(s.to_completion.count()));
    }
    const auto all = boot->allgather(mine.take(), options.timeout);
    if (boot->rank() != 0) return;
    for (std::size_t r = 1; r < all.size(); ++r) {
      unpacker theirs(all[r]);
      for (operation_stats& s : sum) {
        s.count += theirs.u64();
        s.bytes += theirs.u64();
        s.failures += theirs.u64();
        s.waited_for_slot += nanoseconds(theirs.u64());
        s.to_completion += nanoseconds(theirs.u64());
      }
    }
    whose = "all " + std::to_string(boot->size()) + " ranks";
  }
  std::fprintf(stderr, "crosswarp: what was done, %s\n%s", whose.c_str(), print_stats(sum).c_str());
}

void state::depart() noexcept {
  const bool told = boot->told();
  try {
    stream.sync();
    finish_commands();
    if (wants_stats()) show_stats();
    if (!boot->in_process()) finish_trace();
    // Ranks of one process are ended together by run_local().
    if (!boot->in_process()) boot->part(options.timeout);
  } catch (...) {
    // The world is broken or a kernel failed: nothing to wait for.
    tell_swallowed("end of the world", told);
  }
  try {
    if (const auto late = late_kernel()) throw *late;
  } catch (const std::exception& e) {
    log::error(boot->rank(), "end of the world: ", e.what());
  }
  if (trace) trace->finish_alone(boot->rank(), proxy.get());
}

// ---- what headers need

heap_block::heap_block(world& w, std::size_t bytes_asked, std::size_t alignment)
    : owner_(&w.state()), offset_(0) {
  const trace::span traced(owner_->recorder(), trace::host_call::allocate, bytes_asked);
  struct asked {
    std::size_t bytes, alignment, history;
    bool operator==(const asked&) const = default;
  };
  const asked mine{bytes_asked, alignment, owner_->blocks.history()};
  const std::vector<asked> all = w.allgather(mine);
  for (int r = 0; r < w.size(); ++r) {
    const asked& a = all[static_cast<std::size_t>(r)];
    if (a == mine) continue;
    const std::string why = a.history != mine.history
                                ? "made or destroyed other symmetric memory before"
                                : "asked for " + std::to_string(a.bytes) + " bytes aligned to " +
                                      std::to_string(a.alignment) + ", this rank for " +
                                      std::to_string(bytes_asked) + " aligned to " +
                                      std::to_string(alignment);
    throw error(errc::asymmetric, "symmetric allocation", why, r);
  }
  offset_ = owner_->blocks.allocate(bytes_asked, alignment, owner_->heap->alignment);
  // Memory that nobody had before is zero. What was used is cleared before anybody may write it.
  const std::size_t end = offset_ + bytes_asked;
  const std::size_t used = std::min(end, owner_->touched) - std::min(offset_, owner_->touched);
  owner_->touched = std::max(owner_->touched, end);
  if (used == 0) return;
  const std::vector<std::byte> zeros(std::min<std::size_t>(used, 1U << 20U));
  for (std::size_t at = 0; at < used; at += zeros.size()) {
    exec::copy_now(owner_->options.device, heap_base(*owner_, w.rank()) + offset_ + at,
                   zeros.data(), std::min(zeros.size(), used - at));
  }
  w.barrier();
}

heap_block::~heap_block() {
  if (owner_ != nullptr) owner_->blocks.release(offset_);
}

heap_block::heap_block(heap_block&& o) noexcept
    : owner_(std::exchange(o.owner_, nullptr)), offset_(o.offset_) {}

const device::peer_table& heap_peers(const state& s) noexcept {
  return s.view.peers;
}
int rank_of(const state& s) noexcept {
  return s.boot->rank();
}
device_ref device_of(const state& s) noexcept {
  return s.options.device;
}
std::size_t heap_bytes(const state& s) {
  return whole_heap(s.options, s.boot->size());
}
std::byte* heap_base(const state& s, int pe) {
  return s.heap->base.at(static_cast<std::size_t>(pe));
}
int gathered_ranks(const state& s) noexcept {
  return s.together ? s.together->size() : 1;
}

launch_note::launch_note(state& s) noexcept : of_(s), began_(s.trace ? device::trace_ticks() : 0) {}
launch_note::~launch_note() {
  of_.note_call(trace::host_call::launch, began_);
}

void gather_launch(state& s, const launch_part& mine,
                   const std::function<void(std::span<const launch_part>)>& start) {
  if (!s.together) return start(std::span(&mine, 1));
  s.together->meet(s.boot->rank(), s.launches++, mine, *s.boot, s.options.timeout, start);
}

void run_scheduled(
    state& s, std::span<const launch_part> parts,
    const std::function<std::function<void(const device::kernel_context&)>(const void*)>& body) {
  std::vector<exec::cpu_grid> grids;
  std::uint32_t owner = 1;
  for (const launch_part& p : parts) {
    p.stream->sync();
    grids.push_back({p.shape, body(p.bound), owner++});
  }
  exec::cpu::run_scheduled(grids, *s.options.device.scheduler());
}

}  // namespace world_impl

// ---- world

namespace {

std::string reason_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  } catch (...) {
    return "an unknown exception";
  }
}

/// Tells all ranks that this one gives up; false when they gave up before.
bool break_world(world_impl::bootstrap& b, const std::string& why) noexcept {
  try {
    return b.fail({status::aborted, b.rank(), why});
  } catch (...) {
    return false;  // Out of memory for the message: the connection's end will tell the others.
  }
}

/// Who launches together: ranks of this process on the same GPU, or under the same schedule.
std::shared_ptr<world_impl::launch_gather> gather_of(int ranks, const world_options& o) {
  if (o.device.kind() == device_kind::cpu && o.device.scheduler() == nullptr) return nullptr;
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
  return std::make_shared<world_impl::launch_gather>(std::move(all));
}

}  // namespace

bool launched() {
  return world_impl::environment_has_job();
}

world::world(const world_options& options) {
  const auto boot = world_impl::make_environment_bootstrap(options.timeout);
  try {
    state_ = std::make_unique<world_impl::state>(options, boot, nullptr);
    if (options.self_test) memory::self_test(*this, state_->test_lines);
    barrier();
  } catch (...) {
    break_world(*boot, reason_of(std::current_exception()));
    throw;
  }
}

world::world(std::unique_ptr<world_impl::state> s) noexcept : state_(std::move(s)) {}
world::world(world&&) noexcept = default;

world::~world() {
  if (!state_) return;
  if (std::uncaught_exceptions() > 0) {
    break_world(*state_->boot, "an exception left the scope of its world");
  }
  state_->depart();
}

int world::rank() const noexcept {
  return state_->boot->rank();
}
int world::size() const noexcept {
  return state_->boot->size();
}
int world::node_count() const noexcept {
  return state_->who.nodes;
}
int world::node_of(int rank) const {
  return state_->who.node.at(static_cast<std::size_t>(rank));
}
const world_options& world::options() const noexcept {
  return state_->options;
}
stream& world::stream() noexcept {
  return state_->stream;
}
device::world world::device() const noexcept {
  return state_->view;
}

void world::barrier() {
  const trace::span traced(state_->recorder(), trace::host_call::barrier);
  state_->check("barrier");
  state_->boot->barrier(state_->options.timeout);
}

std::vector<std::vector<std::byte>> world::allgather(std::span<const std::byte> mine) {
  const trace::span traced(state_->recorder(), trace::host_call::allgather, mine.size());
  return state_->boot->allgather({mine.begin(), mine.end()}, state_->options.timeout);
}

void world::put(const std::string& key, std::span<const std::byte> value) {
  const trace::span traced(state_->recorder(), trace::host_call::put, value.size());
  state_->boot->put("user." + key, {value.begin(), value.end()});
}
std::vector<std::byte> world::get(const std::string& key) {
  const trace::span traced(state_->recorder(), trace::host_call::get);
  return state_->boot->get("user." + key, state_->options.timeout);
}

void world::abort(const std::string& why) noexcept {
  if (break_world(*state_->boot, why)) log::error(rank(), "world: aborted: ", why);
}

void world::check() const {
  state_->check("world");
}

bool world::has_proxy() const noexcept {
  return state_->proxy != nullptr || state_->rdma != nullptr;
}
bool world::progress() noexcept {
  return state_->proxy != nullptr && state_->proxy->progress();
}

std::vector<operation_stats> world::stats() const {
  return state_->stats();
}
void world::reset_stats() {
  state_->reset_stats();
}

std::string world::path_to(int rank) const {
  if (rank == this->rank()) return "self";
  if (state_->by_proxy.at(static_cast<std::size_t>(rank))) {
    if (state_->rdma) return "rdma (" + state_->rdma->name() + ")";
    return "proxy (" + std::string(state_->proxy->can().name) + ")";
  }
  return state_->heap->base.at(static_cast<std::size_t>(rank)) == nullptr ? "none"
                                                                          : state_->heap->how;
}

bool world::is_mapped(int rank) const {
  const auto i = static_cast<std::size_t>(rank);
  return rank == this->rank() || (!state_->by_proxy.at(i) && state_->heap->base.at(i) != nullptr);
}

// ---- registration

struct registration::state {
  crosswarp::world_impl::state* owner;
  std::size_t bytes;
  std::unique_ptr<mapped::mapping> mapping;
  world_impl::peers_here peers;
  std::uint16_t region;
};

registration::registration(world& w, void* p, std::size_t bytes) {
  const trace::span traced(w.state().recorder(), trace::host_call::register_memory, bytes);
  auto mapping = mapped::map_existing(w.state().request(), p, bytes);
  std::optional<world_impl::peers_here> peers;
  std::string why;
  try {
    peers = w.state().table_of(*mapping);
  } catch (const error& e) {
    why = e.what();
  }
  mapped::agree_to_share(w.state().request(), why);
  const std::uint16_t region =
      w.state().add_region(*mapping, bytes, w.options().device.kind() == device_kind::cpu);
  state_ = std::make_unique<state>(
      state{&w.state(), bytes, std::move(mapping), std::move(*peers), region});
}

registration::~registration() {
  if (!state_) return;
  const bool told = state_->owner->boot->told();
  try {
    // Nobody unmaps what another rank may still use.
    state_->owner->finish_commands();
    state_->owner->boot->barrier(state_->owner->options.timeout);
  } catch (...) {
    // The world is broken: the others have stopped.
    state_->owner->tell_swallowed("end of a registration", told);
  }
  state_->owner->remove_region(state_->region);
}

registration::registration(registration&&) noexcept = default;
const device::peer_table& registration::peers() const noexcept {
  return state_->peers.view;
}
int registration::rank() const noexcept {
  return state_->owner->boot->rank();
}
std::size_t registration::bytes() const noexcept {
  return state_->bytes;
}
std::uint16_t registration::region() const noexcept {
  return state_->region;
}

// ---- ranks as threads

namespace {

/// The first thing thrown by a rank; what others throw afterwards only follows from it.
class first_failure {
 public:
  void note(std::exception_ptr e) {
    const std::scoped_lock lock(mutex_);
    if (!first_) first_ = std::move(e);
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

void run(int ranks, const world_options& options, const std::function<void(world&)>& rank_main) {
  if (!launched()) return run_local(ranks, options, rank_main);
  world w(options);
  try {
    rank_main(w);
  } catch (...) {
    break_world(*w.state().boot, reason_of(std::current_exception()));
    throw;
  }
  w.stream().sync();
  w.barrier();
}

void run_local(int ranks, const world_options& options,
               const std::function<void(world&)>& rank_main) {
  if (ranks < 1 || ranks > 4096) {
    throw error(errc::invalid_argument, "run_local",
                std::to_string(ranks) + " ranks: from 1 to 4096");
  }
  auto boots = world_impl::make_local_bootstraps(ranks);
  const auto together = gather_of(ranks, options);
  first_failure failure;
  // Worlds end after all threads have: a rank's memory stays while another may look at it.
  std::vector<std::unique_ptr<world>> worlds(static_cast<std::size_t>(ranks));
  const auto run_rank = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    const std::shared_ptr<world_impl::bootstrap> boot = boots[i];
    try {
      world_options mine = options;
      if (mine.device.kind() == device_kind::cuda && cuda_device_count() == 0) {
        throw error(errc::not_supported, "run_local", cuda_absence_reason());
      }
      worlds[i].reset(new world(std::make_unique<world_impl::state>(mine, boot, together)));
      if (mine.self_test) memory::self_test(*worlds[i], worlds[i]->state_->test_lines);
      worlds[i]->barrier();
      rank_main(*worlds[i]);
      worlds[i]->stream().sync();
      worlds[i]->state_->finish_commands();
      worlds[i]->state_->finish_trace();
      worlds[i]->barrier();
    } catch (...) {
      const auto e = std::current_exception();
      failure.note(e);
      // Told here, too: what is thrown in the end does not say whose it was.
      if (break_world(*boot, reason_of(e))) log::error(r, "world: aborted: ", reason_of(e));
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run_rank, r);
  for (std::thread& t : threads) t.join();
  failure.rethrow();
}

}  // namespace crosswarp
