// What a command is to the engine: pieces of a range, an atomic operation, a collective one.
#include <algorithm>
#include <cstring>

#include "crosswarp/error.hpp"
#include "memory/private_memory.hpp"
#include "operation.hpp"

namespace crosswarp {

using device::proxy_command;
using device::proxy_op;
using device::signal_op;
using namespace proxy_impl;

namespace {

constexpr int pieces_per_visit = 256;

bool reads_remote(proxy_op op) noexcept {
  return op == proxy_op::get || op == proxy_op::get_strided;
}

}  // namespace

bool proxy::start(operation& op) {
  if (op.outcome != status::ok) return true;
  switch (op.c.op) {
    case proxy_op::put:
    case proxy_op::put_inline:
      return start_range(op) && start_signal(op);
    case proxy_op::get:
      return start_range(op);
    case proxy_op::put_strided:
    case proxy_op::get_strided:
      return start_blocks(op);
    case proxy_op::atomic:
      return start_atomic(op);
    case proxy_op::fence:
      return engine_->fence();
    case proxy_op::barrier:
    case proxy_op::broadcast:
    case proxy_op::reduce:
      return start_collective(op);
    case proxy_op::none:
    case proxy_op::quiet:
      break;
  }
  return true;
}

std::byte* proxy::here(std::uint16_t region, std::uint64_t offset) const noexcept {
  return regions_[region].base + offset;
}

/// The engine may have this memory: it is in a region, or the GPU's and the engine knows GPUs.
bool proxy::direct(std::uint64_t address, std::uint64_t bytes) const noexcept {
  const bool in_region = std::any_of(regions_.begin(), regions_.end(), [&](const region_info& r) {
    const auto base = reinterpret_cast<std::uintptr_t>(r.base);
    return r.base != nullptr && address >= base && address - base <= r.bytes &&
           bytes <= r.bytes - (address - base);
  });
  return in_region || (engine_->can().gpu_memory &&
                       exec::owns(device_, reinterpret_cast<const void*>(address), bytes));
}

/// Lets `f` start an engine's operation that ends with a call of `op`'s or a chunk's completion.
template <class F>
bool proxy::hand_over(operation& op, F&& f) {
  ++op.parts;
  ++under_way_;
  if (f()) return true;
  --op.parts;
  --under_way_;
  return false;
}

/// One contiguous piece. Memory that the engine may not know goes through chunks.
bool proxy::start_part(operation& op, std::uint64_t remote, std::uint64_t local,
                       std::uint64_t bytes) {
  const place there{op.c.pe, op.c.region, remote};
  const bool get = reads_remote(op.c.op);
  auto* const address = reinterpret_cast<std::byte*>(local);
  if (direct(local, bytes)) {
    return hand_over(op, [&] {
      return get ? engine_->get(there, address, bytes, op)
                 : engine_->put(there, address, bytes, op);
    });
  }
  chunk* const piece = free_chunk();
  if (piece == nullptr) return false;
  piece->of = &op;
  piece->local = local;
  piece->bytes = bytes;
  piece->done = [](completion& c, status s) {
    auto& p = static_cast<chunk&>(c);
    operation& of = *p.of;
    proxy& owner = *of.owner;
    if (reads_remote(of.c.op) && s == status::ok) {
      s = owner.write_local(p.local, p.memory.data(), p.bytes);
    }
    owner.free_chunks_.push_back(&p);
    --owner.under_way_;
    owner.part_done(of, s);
  };
  std::byte* const held = piece->memory.data();
  if (!get) {
    if (const status s = read_local(held, local, bytes); s != status::ok) {
      free_chunks_.push_back(piece);
      set_worse(op.outcome, s);
      return true;
    }
  }
  const bool taken_over = hand_over(op, [&] {
    return get ? engine_->get(there, held, bytes, *piece)
               : engine_->put(there, held, bytes, *piece);
  });
  if (!taken_over) free_chunks_.push_back(piece);
  return taken_over;
}

proxy::chunk* proxy::free_chunk() {
  if (free_chunks_.empty()) {
    if (chunks_.size() == chunk::at_once) return nullptr;
    chunks_.push_back(std::make_unique<chunk>(device_));
    free_chunks_.push_back(chunks_.back().get());
  }
  chunk* const c = free_chunks_.back();
  free_chunks_.pop_back();
  return c;
}

/// From and to addresses that a kernel gave, which may be anything.
status proxy::read_local(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept {
  const auto* address = reinterpret_cast<const std::byte*>(from);
  if (!exec::owns(device_, address, bytes)) return memory::read_private(to, address, bytes);
  return copy_gpu(to, address, bytes);
}

status proxy::write_local(std::uint64_t to, const std::byte* from,
                          std::size_t bytes) const noexcept {
  auto* address = reinterpret_cast<std::byte*>(to);
  if (!exec::owns(device_, address, bytes)) return memory::write_private(address, from, bytes);
  return copy_gpu(address, from, bytes);
}

status proxy::copy_gpu(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
  try {
    exec::copy_now(device_, to, from, bytes);
    return status::ok;
  } catch (const error&) {
    return status::invalid;
  }
}

bool proxy::start_range(operation& op) {
  if (op.c.op == proxy_op::put_inline) {
    if (op.started > 0 || op.c.width == 0) return true;
    std::memcpy(op.data, &op.c.local, 8);
    std::memcpy(op.data + 8, &op.c.bytes, 8);
    const place there{op.c.pe, op.c.region, op.c.remote};
    if (!hand_over(op, [&] { return engine_->put_small(there, op.data, op.c.width, op); })) {
      return false;
    }
    op.started = op.c.width;
    return true;
  }
  const bool whole = direct(op.c.local, op.c.bytes);
  while (op.started < op.c.bytes && op.outcome == status::ok) {
    const std::uint64_t left = op.c.bytes - op.started;
    const std::uint64_t bytes = whole ? left : std::min<std::uint64_t>(left, chunk::capacity);
    if (!start_part(op, op.c.remote + op.started, op.c.local + op.started, bytes)) return false;
    op.started += bytes;
  }
  return true;
}

bool proxy::start_blocks(operation& op) {
  const std::uint64_t total = op.c.bytes * op.c.c;  // the check of its strides has bounded it
  const bool dense = op.c.a == op.c.bytes && op.c.b == op.c.bytes;
  for (int pieces = 0; op.started < total && op.outcome == status::ok; ++pieces) {
    if (pieces == pieces_per_visit) return false;  // others want their turn too
    const std::uint64_t block = op.started / op.c.bytes;
    const std::uint64_t within = op.started % op.c.bytes;
    const std::uint64_t remote = op.c.remote + block * op.c.a + within;
    const std::uint64_t local = op.c.local + block * op.c.b + within;
    std::uint64_t bytes = dense ? total - op.started : op.c.bytes - within;
    if (!direct(local, bytes)) bytes = std::min<std::uint64_t>(bytes, chunk::capacity);
    if (!start_part(op, remote, local, bytes)) return false;
    op.started += bytes;
  }
  return true;
}

bool proxy::start_signal(operation& op) {
  const auto how = static_cast<signal_op>(op.c.what);
  if (how == signal_op::none || op.outcome != status::ok) return true;
  if (!op.data_started) {
    if (!engine_->fence()) return false;
    op.data_started = true;
  }
  return hand_over(op, [&] {
    return engine_->atomic(how == signal_op::set ? amo::set : amo::add, 8,
                           {op.c.pe, op.c.signal_region, op.c.a}, op.c.b, 0, nullptr, op);
  });
}

bool proxy::start_atomic(operation& op) {
  const bool fetches = (op.c.flags & proxy_command::wants_reply) != 0 || op.c.local != 0;
  return hand_over(op, [&] {
    return engine_->atomic(static_cast<amo>(op.c.what), op.c.width,
                           {op.c.pe, op.c.region, op.c.remote}, op.c.a, op.c.b,
                           fetches ? &op.result : nullptr, op);
  });
}

bool proxy::start_collective(operation& op) {
  return hand_over(op, [&] {
    if (op.c.op == proxy_op::barrier) return engine_->barrier(op);
    std::byte* const to = here(op.c.region, op.c.remote);
    const std::byte* const from = here(op.c.signal_region, op.c.c);
    if (op.c.op == proxy_op::broadcast) {
      return engine_->broadcast(op.c.pe, to, from, op.c.bytes, op);
    }
    return engine_->reduce(static_cast<reduction>(op.c.what), static_cast<element>(op.c.width), to,
                           from, op.c.bytes, op);
  });
}

}  // namespace crosswarp
