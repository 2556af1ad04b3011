#include "state.hpp"

#include <exception>
#include <limits>

#include "core/log.hpp"
#include "core/variables.hpp"
#include "crosswarp/options.hpp"
#include "exec/cpu/executor.hpp"

namespace crosswarp::world_impl {

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
  here.view.ranks = boot->size();
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

void state::check(const char* call) const {
  boot->check(call);
  if (const auto late = late_kernel()) throw *late;
}

std::optional<error> state::late_kernel() const {
  const fault_word late = device::system_atomic<fault_word>(faults->words.data()[1])
                              .exchange(0, device::order::relaxed);
  if (late == 0) return std::nullopt;
  const auto broken = [&](errc code, const char* why) {
    return error(code, "kernel", why, fault_rank(late));
  };
  switch (fault_status(late)) {
    case status::peer_lost:
      return broken(errc::peer_lost, "it did not answer");
    case status::aborted:
      return broken(errc::aborted, "it gave up");
    default:
      return broken(errc::timeout, "waited in vain");
  }
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

std::size_t heap_bytes(const state& s) {
  return whole_heap(s.options, s.boot->size());
}

}  // namespace crosswarp::world_impl
