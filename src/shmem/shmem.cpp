#include "crosswarp/shmem.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agree.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp {

using device::shmem_segment;
using device::shmem_sync;
using device::shmem_team;
using device::signal_line;

namespace {

// Slots of the teams' memory that are taken from the start.
enum fixed_slot { slot_all, slot_sets, slot_shared, fixed_slots };

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

/// How one team's memory is laid out; the same at every PE.
struct layout {
  layout(int pes, std::size_t asked)
      : in(0),
        with(in + static_cast<std::size_t>(pes) * sizeof(signal_line)),
        values(with + static_cast<std::size_t>(pes) * sizeof(shmem_sync::counts)),
        votes(values + static_cast<std::size_t>(pes) * sizeof(std::uint64_t)),
        list(votes + 2 * sizeof(std::uint64_t)),
        work(round_up(list + static_cast<std::size_t>(pes) * sizeof(int), device::line_bytes)),
        work_bytes(round_up(std::max<std::size_t>(asked, 1), device::line_bytes)),
        bytes(work + 2 * work_bytes) {}

  std::size_t in, with, values, votes, list, work, work_bytes, bytes;
};

std::vector<int> strided(int start, int stride, int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) all[static_cast<std::size_t>(i)] = start + i * stride;
  return all;
}

/// Ranks as a start and a stride, where they are that.
std::optional<shmem_team> as_strided(std::span<const int> ranks, int my_pe) {
  const int size = static_cast<int>(ranks.size());
  const int stride = size > 1 ? ranks[1] - ranks[0] : 1;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) return std::nullopt;
  }
  return shmem_team(ranks[0], stride, size, my_pe);
}

}  // namespace

struct shmem::state {
  state(world& of, const shmem_options& o)
      : w(&of),
        options(o),
        plan(of.size(), o.work_bytes),
        pool(of, plan.bytes * static_cast<std::size_t>(o.teams), device::line_bytes),
        outcome(of.options().device, 1, memory_kind::pinned) {}

  world* w;
  shmem_options options;
  layout plan;
  symmetric_buffer<std::byte> pool;
  buffer<status> outcome;  // of kernels by which teams are made
  std::uint64_t free_slots = 0;
  unsigned contexts = 0;
  mutable std::mutex mutex;  // for blocks, which other threads may look at
  std::map<const void*, std::pair<world_impl::heap_block, std::size_t>> blocks;
  std::vector<registration> registrations;
  std::vector<shmem_segment> segments;
  std::vector<buffer<shmem_segment>> segment_tables;  // all: views keep the one they were made with
  std::unique_ptr<team> all;
  std::unique_ptr<team> shared;

  [[nodiscard]] std::byte* slot(int i) const {
    return pool.data() + plan.bytes * static_cast<std::size_t>(i);
  }
  [[nodiscard]] std::byte* heap() const { return world_impl::heap_base(w->state(), w->rank()); }

  [[nodiscard]] shmem_sync sync_of(int i) const {
    std::byte* const at = slot(i);
    return {reinterpret_cast<signal_line*>(at + plan.in),
            reinterpret_cast<shmem_sync::counts*>(at + plan.with),
            reinterpret_cast<std::uint64_t*>(at + plan.values),
            false,
            at + plan.work,
            plan.work_bytes};
  }

  [[nodiscard]] device::shmem view(const shmem_team& who, const shmem_sync& sync, int queue,
                                   std::span<const int> ranks) const {
    const device::world d = w->device();
    const bool mapped =
        std::all_of(ranks.begin(), ranks.end(), [&](int r) { return w->is_mapped(r); });
    // In a team with a stride, evenly mapped ranks are evenly mapped PEs.
    const bool even = who.n_pes() > 0 && std::all_of(ranks.begin(), ranks.end(), [&](int r) {
                        return r >= d.peers.first && r < d.peers.first + d.peers.count;
                      });
    const auto strided = as_strided(ranks, who.my_pe());
    const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 0;
    return device::shmem({.heap = {heap(), world_impl::heap_bytes(w->state()), d.peers, 0},
                          .others = segment_tables.empty() ? nullptr : segment_tables.back().data(),
                          .other_count = static_cast<int>(segments.size()),
                          .team = who,
                          .sync = sync,
                          .limits = d.limits,
                          .proxy = d.proxy,
                          .profile = d.profile,
                          .queue = queue,
                          .all_mapped = mapped,
                          .reach = segments.empty() ? d.peers.reach : device::scope::system,
                          .even = even && strided.has_value() && who.my_pe() >= 0,
                          .distance = stride * d.peers.distance});
  }
};

// ---- teams

struct shmem::team::state {
  static constexpr int no_slot = -1;

  shmem::state* owner;
  int slot = no_slot;
  std::vector<int> ranks;  // by PE
  shmem_team who;          // as the host sees it

  state(shmem::state& of, std::vector<int> all) : owner(&of), ranks(std::move(all)) {
    const auto me = std::find(ranks.begin(), ranks.end(), of.w->rank());
    const int my_pe = me == ranks.end() ? -1 : static_cast<int>(me - ranks.begin());
    who = as_strided(ranks, my_pe)
              .value_or(shmem_team(0, 1, static_cast<int>(ranks.size()), my_pe, ranks.data()));
  }

  /// Takes a slot: its memory is as at the start, with the list of ranks for kernels.
  void settle(int at) {
    slot = at;
    const layout& plan = owner->plan;
    std::vector<std::byte> bytes(plan.work);
    std::memcpy(bytes.data() + plan.list, ranks.data(), ranks.size() * sizeof(int));
    exec::copy_now(owner->w->options().device, owner->slot(slot), bytes.data(), bytes.size());
    owner->free_slots &= ~(std::uint64_t{1} << static_cast<unsigned>(slot));
  }

  [[nodiscard]] device::shmem view(int queue) const {
    const int my_pe = who.my_pe();
    const auto* const list = reinterpret_cast<const int*>(owner->slot(slot) + owner->plan.list);
    return owner->view(
        as_strided(ranks, my_pe).value_or(shmem_team(0, 1, who.n_pes(), my_pe, list)),
        owner->sync_of(slot), queue, ranks);
  }
};

shmem::team::team(std::unique_ptr<state> s) noexcept : state_(std::move(s)) {}
shmem::team::team(team&&) noexcept = default;
shmem::team::~team() {
  if (!state_ || state_->slot == state::no_slot) return;
  state_->owner->free_slots |= std::uint64_t{1} << static_cast<unsigned>(state_->slot);
}

const shmem_team& shmem::team::view() const noexcept {
  return state_->who;
}
device::shmem shmem::team::device() const noexcept {
  return state_->view(0);
}
device::shmem shmem::team::make_context() const noexcept {
  // Queue 0 is the default context's, and the first block's.
  const int queue = static_cast<int>(++state_->owner->contexts & 0xffffU);
  return state_->view(queue);
}

std::optional<shmem::team> shmem::make_team(const team& parent, std::span<const int> pes) {
  state& s = *state_;
  std::vector<int> ranks;
  bool mine = false;
  for (const int pe : pes) {
    if (!parent.view().has(pe)) {
      throw error(errc::invalid_argument, "team",
                  "PE " + std::to_string(pe) + " of a team of " + std::to_string(parent.n_pes()));
    }
    ranks.push_back(parent.view().world_pe(pe));
    for (std::size_t i = 0; i + 1 < ranks.size(); ++i) {
      if (ranks[i] == ranks.back()) {
        throw error(errc::invalid_argument, "team", "PE " + std::to_string(pe) + " comes twice");
      }
    }
    mine = mine || pe == parent.my_pe();
  }
  // A slot that is free at all of them.
  auto* const votes = reinterpret_cast<std::uint64_t*>(s.slot(parent.state_->slot) + s.plan.votes);
  const std::uint64_t common =
      shmem_impl::bits_in_common(*s.w, parent.device(), votes, s.free_slots, s.outcome.data());
  const int slot = std::countr_zero(common);
  if (common == 0) {
    throw error(errc::out_of_memory, "team",
                "no room for another beside those there are; see shmem_options::teams (" +
                    std::to_string(s.options.teams) + ")");
  }
  std::optional<team> made;
  if (mine) {
    made.emplace(team(std::make_unique<team::state>(s, std::move(ranks))));
    made->state_->settle(slot);
  }
  // Nobody uses it before it is clear at all.
  shmem_impl::sync(*s.w, parent.device(), s.outcome.data());
  return made;
}

std::optional<shmem::team> shmem::split_strided(const team& parent, int start, int stride,
                                                int size) {
  if (size < 1 || size > parent.n_pes()) {
    throw error(errc::invalid_argument, "team",
                std::to_string(size) + " PEs of " + std::to_string(parent.n_pes()));
  }
  return make_team(parent, strided(start, stride, size));
}

shmem::axes shmem::split_2d(const team& parent, int width) {
  if (width < 1) {
    throw error(errc::invalid_argument, "team", "rows of " + std::to_string(width) + " PEs");
  }
  const int n = parent.n_pes();
  const int columns = std::min(width, n);
  const int rows = (n + columns - 1) / columns;
  std::optional<team> row;
  std::optional<team> column;
  // Every PE takes part in making every row and every column.
  for (int r = 0; r < rows; ++r) {
    auto t = split_strided(parent, r * columns, 1, std::min(columns, n - r * columns));
    if (t) row.emplace(std::move(*t));
  }
  for (int c = 0; c < columns; ++c) {
    auto t = split_strided(parent, c, columns, (n - c + columns - 1) / columns);
    if (t) column.emplace(std::move(*t));
  }
  return {std::move(*row), std::move(*column)};
}

const shmem::team& shmem::all() const noexcept {
  return *state_->all;
}
const shmem::team& shmem::shared() const noexcept {
  return *state_->shared;
}

device::shmem shmem::active_set(int start, int stride, int size) const {
  const long last = start + static_cast<long>(stride) * (size - 1);
  if (size < 1 || start < 0 || stride < 1 || last >= n_pes()) {
    throw error(errc::invalid_argument, "active set",
                "PEs " + std::to_string(start) + " to " + std::to_string(last) + " of " +
                    std::to_string(n_pes()));
  }
  const shmem_team who(start, stride, size, -1);
  shmem_sync sync = state_->sync_of(slot_sets);
  sync.by_rank = true;
  return state_->view(shmem_team(start, stride, size, who.pe_of(my_pe())), sync, 0,
                      strided(start, stride, size));
}

// ---- the whole

shmem::shmem(world& w, const shmem_options& options) {
  if (options.teams <= fixed_slots || options.teams > 64) {
    throw error(errc::invalid_argument, "shmem",
                std::to_string(options.teams) + " teams: from " + std::to_string(fixed_slots + 1) +
                    " to 64");
  }
  state_ = std::make_unique<state>(w, options);
  state& s = *state_;
  const std::uint64_t slots = ~std::uint64_t{0} >> static_cast<unsigned>(64 - options.teams);
  s.free_slots = slots & ~((std::uint64_t{1} << fixed_slots) - 1);
  std::vector<int> ranks;
  std::vector<int> near;
  for (int r = 0; r < w.size(); ++r) {
    ranks.push_back(r);
    if (w.is_mapped(r)) near.push_back(r);
  }
  const auto make = [&](int slot, std::vector<int> all) {
    auto made = std::make_unique<team::state>(s, std::move(all));
    made->settle(slot);
    return std::unique_ptr<team>(new team(std::move(made)));
  };
  s.all = make(slot_all, std::move(ranks));
  s.shared = make(slot_shared, std::move(near));
  w.barrier();
}

shmem::~shmem() = default;
shmem::shmem(shmem&&) noexcept = default;

int shmem::my_pe() const noexcept {
  return state_->w->rank();
}
int shmem::n_pes() const noexcept {
  return state_->w->size();
}
world& shmem::of() const noexcept {
  return *state_->w;
}

// ---- memory

void* shmem::allocate_bytes(std::size_t bytes, std::size_t alignment) {
  world_impl::heap_block block(*state_->w, bytes, alignment);
  if (bytes == 0) return nullptr;
  void* const at = state_->heap() + block.offset();
  {
    const std::scoped_lock lock(state_->mutex);
    state_->blocks.emplace(at, std::pair(std::move(block), bytes));
  }
  state_->w->barrier();  // it is everybody's before anybody writes
  return at;
}

void shmem::free(void* p) {
  state_->w->barrier();
  if (p == nullptr) return;
  const std::scoped_lock lock(state_->mutex);
  if (state_->blocks.erase(p) == 0) {
    throw error(errc::invalid_argument, "shmem::free", "no such memory, or freed before");
  }
}

std::size_t shmem::size_of(const void* p) const noexcept {
  const std::scoped_lock lock(state_->mutex);
  const auto i = state_->blocks.find(p);
  return i == state_->blocks.end() ? 0 : i->second.second;
}

bool shmem::is_allocated(const void* p) const noexcept {
  const auto* const from = static_cast<const std::byte*>(p);
  const std::byte* const heap = state_->heap();
  if (from < heap || from >= heap + world_impl::heap_bytes(state_->w->state())) return true;
  const std::scoped_lock lock(state_->mutex);
  auto next = state_->blocks.upper_bound(p);
  if (next == state_->blocks.begin()) return false;
  const auto& [begin, block] = *--next;
  return from < static_cast<const std::byte*>(begin) + block.second;
}

void shmem::add_segment(void* base, std::size_t bytes) {
  state& s = *state_;
  registration r(*s.w, base, bytes);
  s.segments.push_back({static_cast<std::byte*>(base), bytes, r.peers(), r.region()});
  s.registrations.push_back(std::move(r));
  s.segment_tables.emplace_back(s.w->options().device, std::span<const shmem_segment>(s.segments));
}

}  // namespace crosswarp
