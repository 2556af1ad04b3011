#include "transports/verbs/keys.hpp"

#include <algorithm>
#include <atomic>

#include "crosswarp/buffer.hpp"
#include "memory/host_copy.hpp"
#include "memory/private_memory.hpp"

namespace crosswarp::verbs {

piece own_piece(const void* p, std::size_t bytes) noexcept {
  return {static_cast<std::byte*>(const_cast<void*>(p)), bytes};
}

// ---- keys

std::uint32_t key_table::add(const memory_range& m, access allowed) {
  auto it = std::find_if(slots_.begin(), slots_.end(), [](const slot& s) { return !s.used; });
  if (it == slots_.end()) it = slots_.emplace(slots_.end());
  it->range = m;
  it->allowed = allowed;
  it->used = true;
  ++it->generation;
  // From 1: key 0 is what a program has that forgot to set one.
  const auto index = static_cast<std::uint32_t>(it - slots_.begin()) + 1;
  return index << 8U | it->generation;
}

void key_table::remove(std::uint32_t key) noexcept {
  slots_[(key >> 8U) - 1].used = false;
}

key_table::verdict key_table::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                                   access want, piece& found) const noexcept {
  const std::uint32_t index = key >> 8U;
  if (index == 0 || index > slots_.size()) return verdict::no_such_key;
  const slot& s = slots_[index - 1];
  if (!s.used || s.generation != (key & 0xffU)) return verdict::no_such_key;
  if (s.range.base == nullptr) {
    if (!rdma::allows(s.allowed, want)) return verdict::not_allowed;
    return find_anywhere(s, address, bytes, found);
  }
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(s.range.base);
  if (offset > s.range.bytes || bytes > s.range.bytes - offset) return verdict::out_of_bounds;
  if (!rdma::allows(s.allowed, want)) return verdict::not_allowed;
  found = {s.range.base + offset, bytes, s.range.device, s.range.on_host};
  return verdict::ok;
}

/// By a key of all memory: what is registered otherwise, too, is known to be there.
key_table::verdict key_table::find_anywhere(const slot& all, std::uint64_t address,
                                            std::uint64_t bytes, piece& found) const noexcept {
  if (address == 0 || address + bytes < address) return verdict::out_of_bounds;
  found = {reinterpret_cast<std::byte*>(address), bytes, all.range.device, all.range.on_host,
           !all.range.on_host};
  for (const slot& s : slots_) {
    const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(s.range.base);
    if (!s.used || s.range.base == nullptr || offset > s.range.bytes) continue;
    if (bytes > s.range.bytes - offset) continue;
    found = {s.range.base + offset, bytes, s.range.device, s.range.on_host};
    break;
  }
  return verdict::ok;
}

// ---- copies

namespace {

bool copy_some(std::byte* to, const std::byte* from, std::size_t bytes, const piece& target,
               const piece& source) noexcept {
  if (target.on_host && source.on_host && !source.believed) {
    return memory::read_private(to, from, bytes) == status::ok;
  }
  if (target.on_host && source.on_host && !target.believed) {
    return memory::write_private(to, from, bytes) == status::ok;
  }
  if (target.on_host && source.on_host) {
    memory::copy_for_kernels(to, from, bytes);
    return true;
  }
  try {
    exec::copy_now(target.on_host ? source.device : target.device, to, from, bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool copy_pieces(std::span<const piece> to, std::span<const piece> from) noexcept {
  std::size_t target = 0;
  std::size_t written = 0;
  for (const piece& source : from) {
    for (std::size_t read = 0; read < source.bytes;) {
      while (target < to.size() && written == to[target].bytes) {
        ++target;
        written = 0;
      }
      if (target == to.size()) return true;
      const std::size_t bytes = std::min(source.bytes - read, to[target].bytes - written);
      if (!copy_some(to[target].at + written, source.at + read, bytes, to[target], source)) {
        return false;
      }
      read += bytes;
      written += bytes;
    }
  }
  return true;
}

// ---- atomics

std::uint64_t apply(const word_operation& op, std::uint64_t before) noexcept {
  if (op.swaps) {
    if (((before ^ op.comparand) & op.compare_mask) != 0) return before;
    return (before & ~op.mask) | (op.operand & op.mask);
  }
  if (op.mask == 0) return before + op.operand;
  // Bits that end a field are added by themselves: their carry goes nowhere.
  const std::uint64_t inner = (before & ~op.mask) + (op.operand & ~op.mask);
  return inner ^ ((before ^ op.operand) & op.mask);
}

namespace {

template <class T>
std::uint64_t update_host(std::byte* at, const word_operation& op) noexcept {
  const std::atomic_ref<T> word(*reinterpret_cast<T*>(at));
  T before = word.load(std::memory_order_acquire);
  for (;;) {
    const T after = static_cast<T>(apply(op, before));
    // Who only fetches does not write: others may be reading the word, and not as an atomic.
    if (after == before) return before;
    // Both ways: it may tell of data that was written before, and what it fetches may, too.
    if (word.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                   std::memory_order_acquire)) {
      return before;
    }
  }
}

template <class T>
std::optional<std::uint64_t> update_device(const piece& at, const word_operation& op) noexcept {
  T before = 0;
  const piece held = own_piece(&before, sizeof(T));
  if (!copy_some(held.at, at.at, sizeof(T), held, at)) return {};
  const T after = static_cast<T>(apply(op, before));
  const piece next = own_piece(&after, sizeof(T));
  if (!copy_some(at.at, next.at, sizeof(T), at, next)) return {};
  return before;
}

}  // namespace

std::optional<std::uint64_t> update(const piece& at, const word_operation& op) noexcept {
  if (!at.on_host) {
    return op.width == 4 ? update_device<std::uint32_t>(at, op)
                         : update_device<std::uint64_t>(at, op);
  }
  return op.width == 4 ? update_host<std::uint32_t>(at.at, op)
                       : update_host<std::uint64_t>(at.at, op);
}

}  // namespace crosswarp::verbs
