#include "coll/registry.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "crosswarp/error.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp::coll_impl {
namespace {

constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

/// What a GPU reads at once: kernels look at their own rank's address alone, so all are to be
/// alike.
std::uint64_t skew_of(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16;
}

std::string in_words(std::uint64_t skew) {
  return std::to_string(skew) + " bytes behind a multiple of 16";
}

/// All ranks throw the first complaint there is.
void agree(world& w, const char* call, const std::string& complaint) {
  const auto all = w.allgather(std::as_bytes(std::span(complaint)));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    throw error(errc::invalid_argument, call,
                std::string(reinterpret_cast<const char*>(all[r].data()), all[r].size()),
                static_cast<int>(r));
  }
}

[[noreturn]] void disagree(const char* call, std::size_t rank, const std::string& why) {
  throw error(errc::asymmetric, call, why, static_cast<int>(rank));
}

}  // namespace

registry::registry(world& w, std::size_t recorded_calls)
    : world_(w), late_(w.options().device, recorded_calls) {}

// ---- buffers

std::optional<std::size_t> registry::in_heap(const void* p, std::size_t bytes) const {
  const std::byte* const base = world_impl::heap_base(world_.state(), world_.rank());
  const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base);
  const std::size_t all = world_impl::heap_bytes(world_.state());
  if (at >= all || bytes > all - at) return std::nullopt;
  return at;
}

bool registry::overlaps(const void* data, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto next = buffers_.lower_bound(begin + bytes);
  if (next == buffers_.begin()) return false;
  const auto& [start, last] = *std::prev(next);
  return start + last.bytes > begin;
}

std::string registry::complaint_about(const void* data, std::size_t bytes) const {
  if (data == nullptr) return "null is no memory";
  if (bytes == 0) return "no bytes";
  if (bytes > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(data)) {
    return std::to_string(bytes) + " bytes are more than there are behind that address";
  }
  if (overlaps(data, bytes)) {
    return "some of it is registered already; unregister_buffer() comes first";
  }
  return {};
}

void registry::add(void* data, std::size_t bytes) {
  constexpr const char* call = "register_buffer";
  world_.stream().sync();  // nothing waits for a rank that allocates
  agree(world_, call, complaint_about(data, bytes));
  struct terms {
    std::uint64_t bytes, heap_offset, skew;
  };
  const terms mine{bytes, in_heap(data, bytes).value_or(none), skew_of(data)};
  const std::vector<terms> all = world_.allgather(mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const terms& theirs = all[r];
    if (theirs.bytes != bytes) {
      disagree(call, r,
               "registers " + std::to_string(theirs.bytes) + " bytes, this rank " +
                   std::to_string(bytes));
    }
    if (theirs.heap_offset != mine.heap_offset) {
      disagree(call, r, "registers another place in the symmetric heap, or other memory");
    }
    if (theirs.skew != mine.skew) {
      disagree(
          call, r,
          "its memory begins " + in_words(theirs.skew) + ", this rank's " + in_words(mine.skew));
    }
  }
  if (mine.heap_offset != none) return;
  registration shared(world_, data, bytes);
  buffers_.emplace(reinterpret_cast<std::uintptr_t>(data),
                   entry{++last_number_, bytes, std::move(shared)});
}

void registry::remove(void* data) {
  constexpr const char* call = "unregister_buffer";
  world_.stream().sync();  // kernels may be using it
  const auto at = buffers_.find(reinterpret_cast<std::uintptr_t>(data));
  const bool known = at != buffers_.end();
  agree(world_, call,
        known || in_heap(data, 1) ? "" : "no registered buffer begins there; pass its first byte");
  const std::uint64_t mine = known ? at->second.number : 0;
  const std::vector<std::uint64_t> all = world_.allgather(mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] != mine) disagree(call, r, "unregisters another buffer");
  }
  if (known) buffers_.erase(at);
}

std::optional<registry::place> registry::find(const void* p, std::size_t bytes) const {
  if (const auto offset = in_heap(p, bytes)) {
    return place{{world_impl::heap_peers(world_.state()), world_.rank(), *offset, bytes}, 0};
  }
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) return std::nullopt;
  const auto& [start, from] = *std::prev(next);
  const std::size_t offset = address - start;
  if (offset >= from.bytes || bytes > from.bytes - offset) return std::nullopt;
  return place{{from.shared.peers(), world_.rank(), offset, bytes, from.shared.region()},
               from.number};
}

// ---- recorded calls

registry::row registry::note_recorded(const void* out, const void* in, std::size_t bytes) {
  const std::size_t at = used_ + pending_.size();
  if (at >= late_.size()) return {nullptr, 0};
  pending_.push_back({{out, find(out, bytes)}, {in, find(in, bytes)}, bytes});
  return {late_.data() + at, (batch_ << 32U) | pending_.size()};
}

/// What a rank says of one operand of a call.
struct registry::offer {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t number;  ///< none: it is still to be registered
  std::uint64_t offset;
};

/// Registers each memory once that is the same for all ranks. What only some ranks take for the
/// same is registered again: all have to do alike.
class registry::recorded_batch {
 public:
  recorded_batch(world& w, const std::vector<noted>& calls) : world_(w) {
    for (const noted& c : calls) {
      mine_.push_back(offer_of(c.out, c.bytes));
      mine_.push_back(offer_of(c.in, c.bytes));
    }
    const auto all = w.allgather(std::as_bytes(std::span(mine_)));
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].size() != mine_.size() * sizeof(offer)) {
        disagree(call, r, "recorded another number of calls");
      }
      std::vector<offer> theirs(mine_.size());
      std::copy_n(all[r].data(), all[r].size(), reinterpret_cast<std::byte*>(theirs.data()));
      for (std::size_t i = 0; i < theirs.size(); ++i) check_alike(r, mine_[i], theirs[i]);
      everybody_.push_back(std::move(theirs));
    }
  }

  /// Of operand `i`: two for each call, out and in.
  device::symmetric<std::byte> memory_of(std::size_t i, const operand& what) {
    if (what.found) return what.found->memory;
    std::vector<std::uint64_t> key{mine_[i].bytes};
    for (const auto& theirs : everybody_) key.push_back(theirs[i].address);
    auto at = known_.find(key);
    if (at == known_.end()) {
      made_.emplace_back(world_, const_cast<void*>(what.address), mine_[i].bytes);
      at = known_.emplace(std::move(key), made_.back().device<std::byte>()).first;
    }
    return at->second;
  }
  [[nodiscard]] std::vector<registration> take() { return std::move(made_); }

 private:
  static constexpr const char* call = "register_recorded";

  static offer offer_of(const operand& o, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(o.address), bytes, o.found ? o.found->number : none,
            o.found ? o.found->memory.remote().offset : skew_of(o.address)};
  }
  static void check_alike(std::size_t rank, const offer& mine, const offer& theirs) {
    if (theirs.bytes != mine.bytes) disagree(call, rank, "recorded calls of other lengths");
    if (theirs.number != mine.number) {
      disagree(call, rank, "recorded a call on memory that is registered otherwise");
    }
    if (theirs.offset != mine.offset) {
      disagree(call, rank,
               mine.number != none
                   ? "recorded a call on another part of registered or symmetric memory"
                   : "recorded a call on memory " + in_words(theirs.offset) + ", this rank " +
                         in_words(mine.offset));
    }
  }

  world& world_;
  std::vector<offer> mine_;
  std::vector<std::vector<offer>> everybody_;
  std::vector<registration> made_;
  std::map<std::vector<std::uint64_t>, device::symmetric<std::byte>> known_;  // in made_
};

std::size_t registry::register_recorded() {
  world_.stream().sync();  // no replay is looking
  // Whatever comes of it, these are done with: a row that stays empty is as good as before.
  const std::vector<noted> calls = std::exchange(pending_, {});
  const std::size_t first = std::exchange(used_, used_ + calls.size());
  ++batch_;
  recorded_batch batch(world_, calls);
  std::vector<late_memory> rows;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto out = batch.memory_of(2 * i, calls[i].out);
    rows.push_back({out, batch.memory_of(2 * i + 1, calls[i].in)});
  }
  for (registration& r : batch.take()) recorded_.push_back(std::move(r));
  exec::copy_now(world_.options().device, late_.data() + first, rows.data(),
                 rows.size() * sizeof(late_memory));
  world_.barrier();  // nobody replays before all have filled theirs
  return calls.size();
}

void registry::forget_recorded() {
  world_.stream().sync();
  const std::vector<late_memory> empty(used_);
  exec::copy_now(world_.options().device, late_.data(), empty.data(), used_ * sizeof(late_memory));
  pending_.clear();
  ++batch_;
  used_ = 0;
  recorded_.clear();
  world_.barrier();
}

}  // namespace crosswarp::coll_impl
