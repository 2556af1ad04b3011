#include "lanes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "crosswarp/error.hpp"

namespace crosswarp::socket_impl {

namespace words = device::socket;

namespace {

std::atomic_ref<std::uint64_t> shared(std::uint64_t& word) noexcept {
  return std::atomic_ref<std::uint64_t>(word);
}

/// lane::host.state: what it is, who found it, and which life of the lane this is.
class lane_state {
 public:
  enum class phase : std::uint8_t { free, offered, found };
  explicit lane_state(std::uint64_t word) noexcept : word_(word) {}
  [[nodiscard]] phase is() const noexcept { return static_cast<phase>(word_ & 0xffU); }
  [[nodiscard]] unsigned rank() const noexcept { return word_ >> 8U & 0xffffU; }
  [[nodiscard]] unsigned lane() const noexcept { return word_ >> 24U & 0xffffU; }
  [[nodiscard]] std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] lane_state offered() const noexcept {
    return lane_state((word_ >> 40U) + 1, phase::offered, 0, 0);
  }
  [[nodiscard]] lane_state found_by(int rank, unsigned lane) const noexcept {
    return lane_state(word_ >> 40U, phase::found, static_cast<unsigned>(rank), lane);
  }
  [[nodiscard]] lane_state free() const noexcept {
    return lane_state(word_ >> 40U, phase::free, 0, 0);
  }

 private:
  lane_state(std::uint64_t life, phase p, unsigned rank, unsigned lane) noexcept
      : word_(life << 40U | std::uint64_t{lane} << 24U | std::uint64_t{rank} << 8U |
              static_cast<std::uint64_t>(p)) {}
  std::uint64_t word_;
};
using phase = lane_state::phase;

using key = std::array<std::uint64_t, 5>;

/// As this end calls the two; the other end has them the other way round.
key key_of(const words::address& own, const words::address& peer) {
  key k{};
  std::memcpy(&k[0], own.host, sizeof(own.host));
  std::memcpy(&k[2], peer.host, sizeof(peer.host));
  k[4] = std::uint64_t{own.port} << 32U | std::uint64_t{peer.port} << 16U | own.family;
  return k;
}
key turned(const key& k) {
  const std::uint64_t own = k[4] >> 32U & 0xffffU;
  const std::uint64_t peer = k[4] >> 16U & 0xffffU;
  return {k[2], k[3], k[0], k[1], peer << 32U | own << 16U | (k[4] & 0xffffU)};
}
key read_key(words::lane& l) {
  key k{};
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i] = shared(l.host.key[i]).load(std::memory_order_relaxed);
  }
  return k;
}

std::size_t bytes_of_words(unsigned count) {
  constexpr std::size_t page = 4096;
  return (count * sizeof(words::lane) + page - 1) / page * page;
}

}  // namespace

lanes::lanes(world& w, int count, std::size_t bytes)
    : world_(w.state()), count_(static_cast<unsigned>(count)), bytes_(bytes) {
  const auto asked = w.allgather(std::array<std::uint64_t, 2>{count_, bytes_});
  for (std::size_t r = 0; r < asked.size(); ++r) {
    if (asked[r] != asked[static_cast<std::size_t>(w.rank())]) {
      throw error(errc::asymmetric, "socket service",
                  "asked for other lanes: use the same options on all ranks", static_cast<int>(r));
    }
  }
  if (count_ == 0) return;
  auto request = world_.request();
  request.kind = memory_kind::pinned;  // both hosts and kernels use it
  memory_ = mapped::map_new(request, bytes_of_words(count_) + count_ * bytes_);
  peers_ = world_.table_of(*memory_);
  for (int r = 0; r < w.size(); ++r) {
    if (memory_->base[static_cast<std::size_t>(r)] != nullptr &&
        (r == w.rank() || w.is_mapped(r))) {
      reached_.push_back(r);
    }
  }
  for (unsigned i = 0; i < count_; ++i) free_.push_back(i);
}

lanes::~lanes() {
  if (!memory_) return;
  const bool told = world_.boot->told();
  try {
    world_.boot->barrier(world_.options.timeout);
  } catch (...) {
    // The world is broken: the others have stopped.
    world_.tell_swallowed("end of a socket service", told);
  }
}

void lanes::show(words::memory& m) const noexcept {
  if (!memory_) return;
  const int rank = world_.boot->rank();
  m.lanes = {peers_->view, rank, 0, count_};
  m.lane_rings = {peers_->view, rank, bytes_of_words(count_), count_ * bytes_};
  m.lane_bytes = bytes_;
}

words::lane& lanes::at(int rank, unsigned which) const noexcept {
  return reinterpret_cast<lane*>(memory_->base[static_cast<std::size_t>(rank)])[which];
}

// ---- how two ends find each other

std::optional<unsigned> lanes::take() {
  const std::lock_guard lock(guard_);
  collect();
  if (free_.empty()) return {};
  const unsigned own = free_.back();
  free_.pop_back();
  return own;
}

std::optional<unsigned> lanes::offer(const words::names& ends) {
  const auto taken = take();
  if (!taken) return {};
  const unsigned own = *taken;
  lane& l = at(world_.boot->rank(), own);
  // Relaxed, all of it: who finds the lane has read its state.
  for (std::uint64_t* const w : {&l.in.head, &l.in.from, &l.out.tail, &l.host.left}) {
    shared(*w).store(0, std::memory_order_relaxed);
  }
  const key k = key_of(ends.own, ends.peer);
  for (std::size_t i = 0; i < k.size(); ++i) {
    shared(l.host.key[i]).store(k[i], std::memory_order_relaxed);
  }
  const auto state = shared(l.host.state);
  // In one order with the other end's: one of the two that offer and then look sees the other.
  state.store(lane_state(state.load(std::memory_order_relaxed)).offered().word(),
              std::memory_order_seq_cst);
  match(own);
  return own;
}

/// Looks for the other end. Both may find each other at once: they find the same.
bool lanes::match(unsigned own) {
  const int me = world_.boot->rank();
  lane& mine = at(me, own);
  const key wanted = turned(read_key(mine));
  for (const int rank : reached_) {
    for (unsigned i = 0; i < count_; ++i) {
      lane& l = at(rank, i);
      const auto state = shared(l.host.state);
      std::uint64_t seen = state.load(std::memory_order_seq_cst);
      if (lane_state(seen).is() != phase::offered || (rank == me && i == own)) continue;
      // The names may change meanwhile; then so does the life, and the exchange fails.
      if (read_key(l) != wanted) continue;
      if (!state.compare_exchange_strong(seen, lane_state(seen).found_by(me, own).word(),
                                         std::memory_order_acq_rel)) {
        continue;
      }
      std::uint64_t offered = shared(mine.host.state).load(std::memory_order_relaxed);
      if (lane_state(offered).is() == phase::offered) {
        shared(mine.host.state)
            .compare_exchange_strong(offered, lane_state(offered).found_by(rank, i).word(),
                                     std::memory_order_acq_rel);
      }
      return true;
    }
  }
  return false;
}

lane_link lanes::find(unsigned own) const {
  // pairs with match() of the other end: its lane's words are as they begin
  const lane_state s(
      shared(at(world_.boot->rank(), own).host.state).load(std::memory_order_acquire));
  return s.is() == phase::found ? lane_link(own, s.rank(), s.lane()) : lane_link();
}

bool lanes::withdraw(unsigned own) {
  const auto state = shared(at(world_.boot->rank(), own).host.state);
  std::uint64_t seen = state.load(std::memory_order_relaxed);
  if (lane_state(seen).is() != phase::offered ||
      !state.compare_exchange_strong(seen, lane_state(seen).free().word(),
                                     std::memory_order_acq_rel)) {
    return false;
  }
  const std::lock_guard lock(guard_);
  free_.push_back(own);
  return true;
}

// ---- how they end

bool lanes::finish(lane_link link) const {
  lane& mine = at(world_.boot->rank(), link.own());
  lane& theirs = at(link.peer_rank(), link.peer());
  const auto head = shared(theirs.in.head);
  const auto tail = shared(theirs.out.tail);
  const auto read = words::mark::of(tail.load(std::memory_order_relaxed));
  const auto came = words::mark::of(shared(mine.in.head).load(std::memory_order_acquire));
  const auto from = shared(mine.in.from).load(std::memory_order_relaxed);
  if (came.has(words::begun) && came.position() > std::max(read.position(), from)) return false;
  const auto sent = words::mark::of(head.load(std::memory_order_relaxed));
  // Each pairs with the other end's kernels, as what this end's would have written.
  if (sent.has(words::begun)) {
    head.store(sent.word() | words::finished, std::memory_order_release);
  }
  tail.store(read.word() | words::closed, std::memory_order_release);
  return true;
}

int lanes::lost_rank() const {
  // Relaxed: it orders nothing.
  const fault_word f = shared(world_.faults->words.data()[0]).load(std::memory_order_relaxed);
  return f != 0 && fault_status(f) == status::peer_lost ? fault_rank(f) : -1;
}

void lanes::leave(lane_link link) {
  // pairs with collect(): this end's kernels have closed, and write no more
  shared(at(link.peer_rank(), link.peer()).host.left).store(1, std::memory_order_release);
  const std::lock_guard lock(guard_);
  ending_.push_back(link.own());
  collect();
}

void lanes::collect() {
  const int me = world_.boot->rank();
  std::erase_if(ending_, [&](unsigned own) {
    lane& l = at(me, own);
    if (shared(l.host.left).load(std::memory_order_acquire) == 0)
      return false;  // pairs with leave()
    const auto state = shared(l.host.state);
    state.store(lane_state(state.load(std::memory_order_relaxed)).free().word(),
                std::memory_order_release);
    // The next one finds nothing of what this one had.
    std::byte* const rings = memory_->base[static_cast<std::size_t>(me)] + bytes_of_words(count_);
    std::memset(rings + own * bytes_, 0, bytes_);
    free_.push_back(own);
    return true;
  });
}

}  // namespace crosswarp::socket_impl
