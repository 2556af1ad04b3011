#include "crosswarp/coll.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "coll/kernels.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp {

using coll_impl::call;
using coll_impl::move_kind;
using coll_impl::reduction_kind;

namespace {

/// How a device shares out a call, and which algorithm is best up to which size.
struct shape_rules {
  int blocks;              ///< at most
  int threads;             ///< of a block
  std::size_t per_block;   ///< bytes that are worth a block of their own
  std::size_t shelf;       ///< of each block's channel
  std::size_t packets;     ///< for each sender in each inbox of a channel
  std::size_t push_bytes;  ///< of the whole call
  std::size_t pull_bytes;
};

/// A rank on a CPU is one thread. On a GPU ranks may share the multiprocessors.
shape_rules rules_for(device_ref d, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (d.kind() == device_kind::cpu) {
    return {1, 1, ~std::size_t{0}, 256U << 10U, 32, 8, 4U << 10U};
  }
  return {std::max(1, 128 / ranks),
          512,
          8U << 10U,
          128U << 10U,
          std::clamp<std::size_t>(std::size_t{8192} / n, 64, 1024),
          32U << 10U,
          ranks == 2 ? 1U << 20U : 128U << 10U};
}

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

/// Some channels of one kind, with their memory.
struct channel_set {
  channel_set(world& w, int channels, std::size_t shelf_bytes, std::size_t packets,
              std::uint32_t first_epoch)
      : work(w, static_cast<std::size_t>(channels) *
                    device::coll::channel_bytes(w.size(), shelf_bytes, packets)) {
    view.rank = w.rank();
    view.size = w.size();
    view.channels = channels;
    view.limits = w.device().limits;
    view.work = work.device();
    view.shelf_bytes = shelf_bytes;
    view.packets = packets;
    if (first_epoch == 0) return;
    const std::size_t stride = device::coll::channel_bytes(w.size(), shelf_bytes, packets);
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      work.write(std::as_bytes(std::span(&first_epoch, 1)),
                 c * stride + device::coll::epoch_offset(w.size()));
    }
  }

  symmetric_buffer<std::byte> work;
  device::coll::parts view;
};

struct coll::state {
  state(world& w, const coll_options& o)
      : of(&w),
        options(o),
        rules(rules_for(w.options().device, w.size())),
        queued(w, rules.blocks, rules.shelf, rules.packets, o.first_epoch),
        own(w, o.channels, o.shelf_bytes, rules.packets, o.first_epoch),
        outcome(w.options().device, 1, memory_kind::pinned) {
    own.view.push_bytes = std::min(rules.push_bytes, rules.packets * 8);
    own.view.pull_bytes = rules.pull_bytes;
    w.barrier();  // everybody's memory is as it has to be at the start
  }

  [[nodiscard]] stream& on(stream* named) const {
    stream& s = named != nullptr ? *named : of->stream();
    if (s.device() != of->options().device) {
      throw error(errc::invalid_argument, "coll", "the stream is on another device than the world");
    }
    return s;
  }

  [[nodiscard]] int blocks_for(std::size_t bytes) const {
    const std::size_t wanted = std::max<std::size_t>(1, bytes / rules.per_block);
    return static_cast<int>(std::min(wanted, static_cast<std::size_t>(rules.blocks)));
  }

  /// The offset in the heap of memory that is symmetric without further ado.
  [[nodiscard]] std::optional<std::size_t> in_heap(const void* p, std::size_t bytes) const {
    const std::byte* const base = world_impl::heap_base(of->state(), of->rank());
    const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base);
    const std::size_t all = world_impl::heap_bytes(of->state());
    if (at >= all || bytes > all - at) return std::nullopt;
    return at;
  }

  [[nodiscard]] call make(void* out, const void* in, std::size_t count) const {
    call c;
    c.with = device::coll(queued.view);
    c.outcome = outcome.data();
    c.out = static_cast<std::byte*>(out);
    c.in = static_cast<const std::byte*>(in);
    c.count = count;
    return c;
  }

  void check_root(const char* name, int root) const {
    if (root < 0 || root >= of->size()) {
      throw error(errc::invalid_argument, name,
                  "no rank " + std::to_string(root) + " among " + std::to_string(of->size()));
    }
  }

  void move(move_kind kind, const call& c, stream* named) const {
    const int blocks = kind == move_kind::barrier ? 1 : blocks_for(c.count);
    coll_impl::queue_move(on(named), {.blocks = blocks, .threads = rules.threads}, kind, c);
  }

  void reduce(reduction_kind kind, const call& c, data_type type, int blocks, stream* named) const {
    const bool on_bits =
        c.op == coll_op::bit_and || c.op == coll_op::bit_or || c.op == coll_op::bit_xor;
    if (on_bits && type != data_type::i32 && type != data_type::i64) {
      throw error(errc::invalid_argument, "coll",
                  std::string(to_string(c.op)) + " of " + to_string(type));
    }
    constexpr std::array queues = {&coll_impl::queue_f64,  &coll_impl::queue_f32,
                                   &coll_impl::queue_f16,  &coll_impl::queue_bf16,
                                   &coll_impl::queue_e4m3, &coll_impl::queue_e5m2,
                                   &coll_impl::queue_i32,  &coll_impl::queue_i64};
    queues[static_cast<std::size_t>(type)](on(named), {.blocks = blocks, .threads = rules.threads},
                                           kind, c);
  }

  world* of;
  coll_options options;
  shape_rules rules;
  channel_set queued;  // for what the host queues
  channel_set own;     // for what kernels call
  buffer<status> outcome;
};

coll::coll(world& w, const coll_options& options) {
  const std::size_t least = std::max<std::size_t>(4096, 64 * static_cast<std::size_t>(w.size()));
  if (options.channels < 1 || options.shelf_bytes < least) {
    throw error(
        errc::invalid_argument, "coll",
        "at least one channel with a shelf of " + std::to_string(least) + " bytes is needed");
  }
  for (int pe = 0; pe < w.size(); ++pe) {
    if (!w.is_mapped(pe)) {
      throw error(errc::not_supported, "coll",
                  "its memory is not mapped here (" + w.path_to(pe) +
                      "); collectives need all ranks on one machine",
                  pe);
    }
  }
  coll_options rounded = options;
  rounded.shelf_bytes = round_up(options.shelf_bytes, device::line_bytes);
  state_ = std::make_unique<state>(w, rounded);
}
coll::~coll() {
  if (!state_) return;
  try {
    state_->of->stream().sync();  // kernels may be using the memory
  } catch (const error&) {
    // Who wants to know has called check().
  }
}
coll::coll(coll&&) noexcept = default;

int coll::rank() const noexcept {
  return state_->of->rank();
}
int coll::size() const noexcept {
  return state_->of->size();
}
world& coll::of() const noexcept {
  return *state_->of;
}
device::coll coll::device() const noexcept {
  return device::coll(state_->own.view);
}

coll::choice coll::explain(const void* out, const void* in, std::size_t bytes) const {
  const state& s = *state_;
  const int blocks = s.blocks_for(bytes);
  const auto ranks = std::to_string(size()) + " ranks";
  if (s.options.algorithm != coll_algorithm::automatic) {
    return {s.options.algorithm, blocks, false, "asked for in coll_options"};
  }
  const std::size_t room = s.rules.packets * 8 * static_cast<std::size_t>(blocks);
  if (bytes <= std::min(s.rules.push_bytes, room)) {
    return {coll_algorithm::push, blocks, false,
            "up to " + std::to_string(std::min(s.rules.push_bytes, room)) +
                " bytes a meeting takes longer than sending everything to everybody"};
  }
  if (bytes <= s.rules.pull_bytes) {
    return {coll_algorithm::pull, blocks, false,
            "up to " + std::to_string(s.rules.pull_bytes) + " bytes, " + ranks +
                " read everything faster than they meet twice"};
  }
  const bool direct = s.in_heap(out, bytes) && s.in_heap(in, bytes);
  return {coll_algorithm::two_shot, blocks, direct,
          direct ? "long, and both are symmetric memory: each element is read and written once"
                 : "long; through the communicator's own memory, as the caller's is not symmetric"};
}

void coll::all_reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                      stream* on) {
  const std::size_t bytes = count * size_of(type);
  const choice how = explain(out, in, bytes);
  call c = state_->make(out, in, count);
  c.op = op;
  c.how = how.algorithm;
  if (how.direct) {
    const auto& peers = world_impl::heap_peers(state_->of->state());
    c.shared_out = {peers, rank(), *state_->in_heap(out, bytes), bytes};
    c.shared_in = {peers, rank(), *state_->in_heap(in, bytes), bytes};
  }
  state_->reduce(reduction_kind::all_reduce, c, type, how.blocks, on);
}

void coll::reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                  int root, stream* on) {
  state_->check_root("reduce", root);
  call c = state_->make(out, in, count);
  c.op = op;
  c.root = root;
  state_->reduce(reduction_kind::reduce, c, type, state_->blocks_for(count * size_of(type)), on);
}

void coll::reduce_scatter(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                          stream* on) {
  call c = state_->make(out, in, count);
  c.op = op;
  const std::size_t bytes = count * size_of(type) * static_cast<std::size_t>(size());
  state_->reduce(reduction_kind::reduce_scatter, c, type, state_->blocks_for(bytes), on);
}

void coll::all_gather(void* out, const void* in, std::size_t bytes, stream* on) {
  state_->move(move_kind::all_gather, state_->make(out, in, bytes), on);
}

void coll::broadcast(void* data, std::size_t bytes, int root, stream* on) {
  state_->check_root("broadcast", root);
  call c = state_->make(data, data, bytes);
  c.root = root;
  state_->move(move_kind::broadcast, c, on);
}

void coll::gather(void* out, const void* in, std::size_t bytes, int root, stream* on) {
  state_->check_root("gather", root);
  call c = state_->make(out, in, bytes);
  c.root = root;
  state_->move(move_kind::gather, c, on);
}

void coll::scatter(void* out, const void* in, std::size_t bytes, int root, stream* on) {
  state_->check_root("scatter", root);
  call c = state_->make(out, in, bytes);
  c.root = root;
  state_->move(move_kind::scatter, c, on);
}

void coll::all_to_all(void* out, const void* in, std::size_t bytes, stream* on) {
  state_->move(move_kind::all_to_all, state_->make(out, in, bytes), on);
}

void coll::barrier(stream* on) {
  state_->move(move_kind::barrier, state_->make(nullptr, nullptr, 0), on);
}

void coll::check(stream* on) {
  state_->on(on).sync();
  const status s = *state_->outcome.data();
  if (s == status::ok) return;
  state_->of->check();
  switch (s) {
    case status::invalid:
      throw error(errc::asymmetric, "coll",
                  "ranks made different calls, or with other counts, types, operations or places "
                  "in the symmetric heap");
    case status::timeout:
      throw error(errc::timeout, "coll", "not all ranks made the call");
    default:
      throw error(errc::aborted, "coll", to_string(s));
  }
}

}  // namespace crosswarp
