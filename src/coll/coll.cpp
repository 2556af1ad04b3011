#include "crosswarp/coll.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "coll/kernels.hpp"
#include "coll/registry.hpp"
#include "coll/tuning.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp {

using coll_impl::call;
using coll_impl::move_kind;
using coll_impl::reduction_kind;

namespace {

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

/// Each rank has its part of a shelf in all_to_all.
constexpr std::size_t least_shelf(int ranks) {
  return std::max<std::size_t>(4096, 64 * static_cast<std::size_t>(ranks));
}

/// Threads of blocks of which a multiprocessor holds two.
constexpr std::size_t small_block = 256;

/// How a device shares out a call, and which algorithm is best up to which size.
struct shape_rules {
  int blocks;                  ///< at most
  int threads;                 ///< of a block, at most
  std::size_t per_block;       ///< bytes that are worth a block of their own
  std::size_t long_per_block;  ///< in two shots
  std::size_t shelf;           ///< of each block's channel
  std::size_t push_per_block;  ///< bytes that a block pushes, so much room each sender has
  std::size_t push_bytes;      ///< of the whole call
  std::size_t pull_bytes;
  std::size_t two_shot_bytes;  ///< between machines; then a ring
  std::size_t early_bytes;     ///< up to here blocks are small, and placed early
};

int multiprocessors(device_ref d) {
  for (const device_info& info : devices()) {
    if (info.device == d) return info.multiprocessors;
  }
  return 1;
}

/// A rank on a CPU is one thread. On a GPU ranks may share the multiprocessors: all their blocks
/// have to be there at once, twice over when they are placed early. Measured on an H200, see
/// docs/measurements/coll.md.
shape_rules rules_for(world& w, const coll_tuning& tuning) {
  const device_ref d = w.options().device;
  if (d.kind() == device_kind::cpu) {
    const std::size_t push = 256;
    return {1,
            1,
            tuning.block,
            tuning.long_block,
            256U << 10U,
            push,
            std::min(push, tuning.push),
            tuning.pull,
            64U << 10U,
            0};
  }
  const int ranks = w.size();
  const int here = world_impl::gathered_ranks(w.state());
  const int blocks = std::max(1, std::min((multiprocessors(d) - 4) / here, 128 / ranks));
  // One warp is left for the words that ranks tell each other.
  const std::size_t push = ranks == 2 ? (small_block - 32) * 8 : (small_block / 2) * 8;
  // Two of each block's, and 8 MiB of the heap in all at most.
  const std::size_t shelf = std::clamp<std::size_t>(
      (4U << 20U) / static_cast<std::size_t>(blocks) / 1024 * 1024, 32U << 10U, 128U << 10U);
  return {blocks,
          512,
          tuning.block,
          tuning.long_block,
          shelf,
          push,
          std::min(push * static_cast<std::size_t>(blocks), tuning.push),
          tuning.pull,
          1U << 20U,
          ranks == 2 ? 4U << 20U : 1U << 20U};
}

}  // namespace

bool all_are_mapped(const world& w) {
  for (int pe = 0; pe < w.size(); ++pe) {
    if (!w.is_mapped(pe)) return false;
  }
  return true;
}

/// Each run's first rank, and behind them the number of ranks. Ranks of a run are mapped to the
/// same ranks, and so to each other. Collective.
std::vector<int> runs_of(world& w) {
  std::vector<std::byte> mine(static_cast<std::size_t>(w.size()));
  for (int pe = 0; pe < w.size(); ++pe) {
    mine[static_cast<std::size_t>(pe)] = std::byte{w.is_mapped(pe)};
  }
  const auto all = w.allgather(mine);
  std::vector<int> firsts;
  for (std::size_t pe = 0; pe < all.size(); ++pe) {
    if (pe == 0 || all[pe] != all[pe - 1]) firsts.push_back(static_cast<int>(pe));
  }
  firsts.push_back(w.size());
  return firsts;
}

/// How much memory some channels have.
struct channel_sizes {
  int channels;
  std::size_t shelf;
  std::size_t packets;
};

/// Where ranks are not mapped, each has room for all of them: shelves are shorter, and there are no
/// packets.
channel_sizes sizes_for(const world& w, channel_sizes wanted) {
  if (all_are_mapped(w)) return wanted;
  const std::size_t most = w.options().device.kind() == device_kind::cpu ? 4U << 20U : 16U << 20U;
  const std::size_t shelves =
      2 * static_cast<std::size_t>(wanted.channels) * static_cast<std::size_t>(w.size());
  const std::size_t room = most / shelves / device::line_bytes * device::line_bytes;
  return {wanted.channels, std::min(wanted.shelf, std::max(room, least_shelf(w.size()))), 0};
}

/// Of one piece of a message; there are two for each rank in each channel.
std::size_t mail_bytes_for(const world& w, int channels) {
  const std::size_t most = w.options().device.kind() == device_kind::cpu ? 1U << 20U : 8U << 20U;
  const std::size_t pieces = 2 * static_cast<std::size_t>(channels * w.size());
  return std::clamp<std::size_t>(most / pieces / device::line_bytes * device::line_bytes, 1024,
                                 64U << 10U);
}

/// Some channels of one kind, with their memory. Where ranks are not mapped, a rank's own memory is
/// one of many pieces of equal size, and the others are its images of the other ranks'.
struct channel_set {
  channel_set(world& w, const channel_sizes& sizes, const buffer<int>& runs,
              std::uint32_t first_epoch)
      : channel_bytes(device::coll::bytes_of_channel(w.size(), sizes.shelf, sizes.packets)),
        rank_bytes(static_cast<std::size_t>(sizes.channels) * channel_bytes),
        images(!all_are_mapped(w)),
        work(w, rank_bytes * (images ? static_cast<std::size_t>(w.size()) : 1)),
        mail(w, static_cast<std::size_t>(sizes.channels) *
                    device::coll::mail_of_channel(w.size(), mail_bytes_for(w, sizes.channels))),
        peers(w.options().device,
              std::span<const device::peer>(images ? peers_of(w) : std::vector<device::peer>(1))),
        rare(w.options().device, 1) {
    view.rank = w.rank();
    view.size = w.size();
    view.channels = sizes.channels;
    view.limits = w.device().limits;
    view.work = work.device();
    view.shelf_bytes = sizes.shelf;
    view.packets = sizes.packets;
    view.channel_bytes = channel_bytes;
    device::coll::rare_parts more;
    more.mail = mail.device();
    more.mail_bytes = mail_bytes_for(w, sizes.channels);
    const std::vector<int> firsts = runs.read();
    more.runs = runs.data();
    more.run_count = static_cast<int>(firsts.size()) - 1;
    while (firsts[static_cast<std::size_t>(more.run) + 1] <= w.rank()) ++more.run;
    more.proxy = w.device().proxy;
    rare.write(std::span(&more, 1));
    view.rare = rare.data();
    if (images) {
      device::peer_table table;
      table.all = peers.data();
      view.work = {table, w.rank(), work.device().remote().offset, work.size()};
      view.image_bytes = rank_bytes;
    }
    if (first_epoch == 0) return;
    const std::size_t own = images ? static_cast<std::size_t>(w.rank()) * rank_bytes : 0;
    for (std::size_t c = 0; c < static_cast<std::size_t>(sizes.channels); ++c) {
      work.write(std::as_bytes(std::span(&first_epoch, 1)),
                 own + c * channel_bytes + device::coll::epoch_offset(w.size()));
    }
  }

  /// Heaps, each moved to the piece that is, or shows, that rank's.
  [[nodiscard]] std::vector<device::peer> peers_of(const world& w) const {
    std::vector<device::peer> all;
    for (int pe = 0; pe < w.size(); ++pe) {
      const bool mapped = w.is_mapped(pe);
      std::byte* const base = world_impl::heap_base(w.state(), mapped ? pe : w.rank());
      all.push_back({base + static_cast<std::size_t>(pe) * rank_bytes,
                     mapped ? device::path::mapped : device::path::proxy});
    }
    return all;
  }

  std::size_t channel_bytes;
  std::size_t rank_bytes;  // of all channels
  bool images;
  symmetric_buffer<std::byte> work;
  symmetric_buffer<std::byte> mail;
  buffer<device::peer> peers;
  buffer<device::coll::rare_parts> rare;
  device::coll::parts view;
};

struct coll::state {
  state(world& w, const coll_options& o)
      : of(&w),
        options(o),
        tuning(coll_impl::agree_on_tuning(w, o)),
        rules(rules_for(w, tuning.values)),
        runs(w.options().device, std::span<const int>(runs_of(w))),
        queued(w, sizes_for(w, {rules.blocks, rules.shelf, rules.push_per_block / 8}), runs,
               o.first_epoch),
        own(w, sizes_for(w, {o.channels, o.shelf_bytes, rules.push_per_block / 8}), runs,
            o.first_epoch),
        outcome(w.options().device, 1, memory_kind::pinned),
        buffers(w, o.recorded_calls) {
    own.view.push_bytes = std::min(rules.push_bytes, rules.push_per_block);
    own.view.pull_bytes = rules.pull_bytes;
    own.view.two_shot_bytes = two_shot_bytes();
    w.barrier();  // everybody's memory is as it has to be at the start
  }

  /// Up to here two shots; then, between machines, a ring, unless there are so many machines with
  /// so few ranks that the last one would send more results than all send in two shots.
  [[nodiscard]] std::size_t two_shot_bytes() const {
    const int count = static_cast<int>(runs.size()) - 1;
    const bool few = count > 1 && count * count <= of->size();
    return few ? rules.two_shot_bytes : std::numeric_limits<std::size_t>::max();
  }

  [[nodiscard]] stream& on(stream* named) const {
    stream& s = named != nullptr ? *named : of->stream();
    if (s.device() != of->options().device) {
      throw error(errc::invalid_argument, "coll", "the stream is on another device than the world");
    }
    return s;
  }

  [[nodiscard]] int blocks_for(std::size_t bytes, std::size_t per_block) const {
    const std::size_t whole = bytes / per_block + (bytes % per_block != 0 ? 1 : 0);
    const std::size_t wanted = std::max<std::size_t>(1, whole);
    return static_cast<int>(std::min(wanted, static_cast<std::size_t>(rules.blocks)));
  }
  [[nodiscard]] int blocks_for(std::size_t bytes) const {
    return blocks_for(bytes, rules.per_block);
  }

  /// For so many bytes by so many blocks. A block that pushes has a thread for each packet, and a
  /// warp for the words that ranks tell each other. Large blocks are not placed early, nor is what
  /// follows them: it would take the place that other ranks' large blocks need.
  [[nodiscard]] launch_shape shape_for(std::size_t bytes, int blocks, bool pushes) const {
    launch_shape shape{.blocks = blocks, .threads = rules.threads};
    if (bytes > rules.early_bytes) return shape;
    const std::size_t packets = bytes / static_cast<std::size_t>(blocks) / 8;
    const std::size_t threads = pushes ? std::min(small_block, round_up(packets, 32) + 32)
                                       : std::min<std::size_t>(small_block, bytes);
    shape.threads = static_cast<int>(std::max<std::size_t>(threads, 32));
    shape.place_early = true;
    return shape;
  }

  /// For a direct call: its memory as all ranks reach it. Returns what ranks have to agree on,
  /// which is nothing more for the heap alone: there it is the offsets.
  template <class Call>
  std::uint32_t share(Call& c, const void* out, const void* in, std::size_t bytes) const {
    const auto to = *buffers.find(out, bytes);
    const auto from = *buffers.find(in, bytes);
    c.shared_out = to.memory;
    c.shared_in = from.memory;
    return to.number == 0 && from.number == 0
               ? 0
               : device::impl::coll_digest().add(to.number).add(from.number).value();
  }

  /// For a call that would be direct if its memory were registered: it may be before a replay.
  void note_recorded(call& c, std::size_t bytes) {
    const auto row = buffers.note_recorded(c.out, c.in, bytes);
    if (row.at == nullptr) return;
    c.late = row.at;
    c.places = device::impl::coll_digest().add(row.number).value();
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

  /// Memory of an argument that is used.
  static void need(const char* name, const char* what, const void* p, std::size_t count) {
    if (p == nullptr && count != 0) {
      throw error(errc::invalid_argument, name, std::string(what) + " is null");
    }
  }
  static void need_both(const char* name, const void* out, const void* in, std::size_t count) {
    state::need(name, "out", out, count);
    state::need(name, "in", in, count);
  }

  void check_root(const char* name, int root) const {
    if (root < 0 || root >= of->size()) {
      throw error(errc::invalid_argument, name,
                  "no rank " + std::to_string(root) + " among " + std::to_string(of->size()));
    }
  }

  void move(move_kind kind, call c, stream* named) const {
    const int blocks = kind == move_kind::barrier ? 1 : blocks_for(c.count);
    c.each = device::sharing<std::byte>(c.count, blocks).size(0);
    coll_impl::queue_move(on(named), shape_for(c.count, blocks, false), kind, c);
  }

  void move_uneven(coll_impl::uneven_kind kind, const call& c, stream* named) const {
    const launch_shape shape = shape_for(c.count, blocks_for(c.count), false);
    coll_impl::queue_uneven(on(named), shape, kind, c);
  }

  void reduce(reduction_kind kind, call c, data_type type, const launch_shape& shape,
              stream* named) const {
    const bool on_bits =
        c.op == coll_op::bit_and || c.op == coll_op::bit_or || c.op == coll_op::bit_xor;
    if (on_bits && type != data_type::i32 && type != data_type::i64) {
      throw error(errc::invalid_argument, "coll",
                  std::string(to_string(c.op)) + " of " + to_string(type));
    }
    // In bytes, so that there is one for all types.
    const std::size_t size = size_of(type);
    c.each = device::sharing<std::byte>(c.count * size, shape.blocks).size(0);
    c.each = c.each < c.count * size ? c.each / size : c.count;
    constexpr std::array queues = {&coll_impl::queue_f64,  &coll_impl::queue_f32,
                                   &coll_impl::queue_f16,  &coll_impl::queue_bf16,
                                   &coll_impl::queue_e4m3, &coll_impl::queue_e5m2,
                                   &coll_impl::queue_i32,  &coll_impl::queue_i64};
    queues[static_cast<std::size_t>(type)](on(named), shape, kind, c);
  }

  /// Messages that are under way at once.
  void queue(const char* name, std::span<const message> all, stream* named) const {
    if (all.empty()) return;
    coll_impl::messages m;
    m.with = device::coll(queued.view);
    m.outcome = outcome.data();
    if (all.size() > m.most) {
      throw error(errc::not_supported, name,
                  std::to_string(all.size()) + " messages at once; there is room for " +
                      std::to_string(m.most));
    }
    // Both ends must come to the same number of blocks, so it depends on nothing but the bytes.
    const int most_blocks = std::max(1, rules.blocks / (2 * std::max(1, of->size() - 1)));
    std::map<std::pair<bool, int>, int> lanes;
    std::size_t longest = 0;
    for (const message& one : all) {
      if (one.with < 0 || one.with >= of->size() || one.with == of->rank()) {
        throw error(
            errc::invalid_argument, name,
            one.with == of->rank()
                ? "rank " + std::to_string(one.with) + " is this one itself; copy instead"
                : "no rank " + std::to_string(one.with) + " among " + std::to_string(of->size()));
      }
      const bool is_sent = one.way == message::direction::send;
      const auto [lane, is_new] = lanes.try_emplace({is_sent, one.with}, m.lanes);
      if (is_new) m.lane_blocks[m.lanes++] = 0;
      const int mine = std::min(blocks_for(one.bytes), most_blocks);
      int& of_lane = m.lane_blocks[lane->second];
      of_lane = std::max(of_lane, mine);
      m.all[m.count++] = {
          static_cast<std::byte*>(one.data), one.bytes, one.with, is_sent, lane->second, mine};
      longest = std::max(longest, one.bytes);
    }
    const int blocks = std::accumulate(m.lane_blocks, m.lane_blocks + m.lanes, 0);
    // All of them wait for other ranks' blocks; threads of a CPU give way to each other.
    if (of->options().device.kind() != device_kind::cpu && blocks > rules.blocks) {
      throw error(errc::not_supported, name,
                  "messages to and from " + std::to_string(m.lanes) +
                      " ranks at once; this device has room for " + std::to_string(rules.blocks));
    }
    const launch_shape shape = shape_for(longest, blocks, false);
    coll_impl::queue_messages(on(named), shape, m);
  }

  /// Whole rows for each block; all the rest is as all_reduce has it for as many bytes.
  template <class T>
  void queue(coll_impl::fused_call<T> c, std::size_t bytes, const choice& how,
             stream* named) const {
    const std::size_t rows = c.rows.rows;
    const auto most = static_cast<std::size_t>(how.blocks);
    c.each = std::max<std::size_t>(1, (rows + most - 1) / most);
    const std::size_t blocks = std::max<std::size_t>(1, (rows + c.each - 1) / c.each);
    c.with = device::coll(queued.view);
    c.outcome = outcome.data();
    c.how = how.algorithm;
    const std::uint32_t places = how.direct ? share(c, c.rows.out, c.rows.in, bytes) : 0;
    c.whole = device::impl::coll_digest()
                  .add(1 + static_cast<std::uint64_t>(c.kind))
                  .add(rows)
                  .add(c.rows.hidden)
                  .add(blocks)
                  .add(places)
                  .value();
    coll_impl::queue_fused(on(named), shape_for(bytes, static_cast<int>(blocks), false), c);
  }

  world* of;
  coll_options options;
  coll_impl::chosen_tuning tuning;
  shape_rules rules;
  buffer<int> runs;    // see runs_of()
  channel_set queued;  // for what the host queues
  channel_set own;     // for what kernels call
  buffer<status> outcome;
  coll_impl::registry buffers;
};

coll::coll(world& w, const coll_options& options) {
  const std::size_t least = least_shelf(w.size());
  if (options.channels < 1 || options.shelf_bytes < least) {
    throw error(
        errc::invalid_argument, "coll",
        "at least one channel with a shelf of " + std::to_string(least) + " bytes is needed");
  }
  for (int pe = 0; pe < w.size(); ++pe) {
    if (!w.is_mapped(pe) && !w.has_proxy()) {
      throw error(errc::not_supported, "coll",
                  "its memory is not mapped here, and there is no proxy", pe);
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
  const auto ranks = std::to_string(size()) + " ranks";
  const int push_blocks = s.blocks_for(bytes, s.rules.push_per_block);
  const std::size_t room = s.rules.push_per_block * static_cast<std::size_t>(push_blocks);
  const coll_algorithm asked = s.options.algorithm;
  if (s.queued.images && asked == coll_algorithm::push) {
    return {coll_algorithm::pull, s.blocks_for(bytes), false,
            "push was asked for in coll_options, but not all ranks are mapped"};
  }
  if (asked == coll_algorithm::push && bytes > room) {
    return {coll_algorithm::pull, s.blocks_for(bytes), false,
            "push was asked for in coll_options, but there is room for " + std::to_string(room) +
                " bytes"};
  }
  if (asked != coll_algorithm::automatic) {
    return {asked, asked == coll_algorithm::push ? push_blocks : s.blocks_for(bytes), false,
            "asked for in coll_options"};
  }
  const auto bytes_by = [&](std::size_t limit) {
    return std::to_string(limit) + " bytes (by " + s.tuning.source + ") ";
  };
  if (s.queued.images) {
    if (bytes <= s.rules.pull_bytes) {
      return {coll_algorithm::pull, s.blocks_for(bytes), false,
              "up to " + bytes_by(s.rules.pull_bytes) +
                  "everything is sent to ranks that are not mapped"};
    }
    if (bytes <= s.two_shot_bytes()) {
      return {coll_algorithm::two_shot, s.blocks_for(bytes, s.rules.long_per_block), false,
              "long, and not all ranks are mapped"};
    }
    return {coll_algorithm::ring, s.blocks_for(bytes, s.rules.long_per_block), false,
            "long, and ranks are on " + std::to_string(s.runs.size() - 1) +
                " machines: each of them sends every element once"};
  }
  if (bytes <= std::min(s.rules.push_bytes, room)) {
    return {coll_algorithm::push, push_blocks, false,
            "up to " + bytes_by(s.rules.push_bytes) +
                "a meeting takes longer than sending everything to everybody"};
  }
  if (bytes <= s.rules.pull_bytes) {
    return {coll_algorithm::pull, s.blocks_for(bytes, s.rules.per_block / 2), false,
            "up to " + bytes_by(s.rules.pull_bytes) + ranks +
                " read everything faster than they meet twice"};
  }
  const bool direct = s.buffers.find(out, bytes) && s.buffers.find(in, bytes);
  return {coll_algorithm::two_shot, s.blocks_for(bytes, s.rules.long_per_block), direct,
          "above " + bytes_by(std::max(s.rules.push_bytes, s.rules.pull_bytes)) +
              (direct ? "two meetings cost less than what they save; both are symmetric or "
                        "registered memory: "
                        "each element is read and written once"
                      : "two meetings cost less than what they save; through the communicator's "
                        "own memory, as the caller's is neither symmetric nor registered")};
}

void coll::all_reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                      stream* on) {
  state::need_both("all_reduce", out, in, count);
  const std::size_t bytes = count * size_of(type);
  const choice how = explain(out, in, bytes);
  call c = state_->make(out, in, count);
  c.op = op;
  c.how = how.algorithm;
  if (how.direct) {
    c.places = state_->share(c, out, in, bytes);
  } else if (how.algorithm == coll_algorithm::two_shot && !state_->queued.images &&
             state_->options.algorithm == coll_algorithm::automatic &&
             state_->on(on).is_recording()) {
    state_->note_recorded(c, bytes);
  }
  state_->reduce(reduction_kind::all_reduce, c, type,
                 state_->shape_for(bytes, how.blocks, how.algorithm == coll_algorithm::push), on);
}

void coll::reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                  int root, stream* on) {
  state::need("reduce", "in", in, count);
  state_->check_root("reduce", root);
  call c = state_->make(out, in, count);
  c.op = op;
  c.root = root;
  const std::size_t bytes = count * size_of(type);
  state_->reduce(reduction_kind::reduce, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::reduce_scatter(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                          stream* on) {
  state::need_both("reduce_scatter", out, in, count);
  call c = state_->make(out, in, count);
  c.op = op;
  const std::size_t bytes = count * size_of(type) * static_cast<std::size_t>(size());
  state_->reduce(reduction_kind::reduce_scatter, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::all_gather(void* out, const void* in, std::size_t bytes, stream* on) {
  state::need_both("all_gather", out, in, bytes);
  state_->move(move_kind::all_gather, state_->make(out, in, bytes), on);
}

void coll::broadcast(void* data, std::size_t bytes, int root, stream* on) {
  state::need("broadcast", "data", data, bytes);
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
  state::need_both("all_to_all", out, in, bytes);
  state_->move(move_kind::all_to_all, state_->make(out, in, bytes), on);
}

void coll::barrier(stream* on) {
  state_->move(move_kind::barrier, state_->make(nullptr, nullptr, 0), on);
}

void coll::send(const void* data, std::size_t bytes, int to, stream* on) {
  const message one{message::direction::send, const_cast<void*>(data), bytes, to};
  state_->queue("send", {&one, 1}, on);
}

void coll::receive(void* data, std::size_t bytes, int from, stream* on) {
  const message one{message::direction::receive, data, bytes, from};
  state_->queue("receive", {&one, 1}, on);
}

void coll::exchange(std::span<const message> all, stream* on) {
  state_->queue("exchange", all, on);
}

// ---- uneven parts

namespace {

/// A copy for the kernel's arguments. `size`: of an element.
coll_impl::uneven copied(const char* name, int ranks, coll::by_rank counts, coll::by_rank places,
                         std::size_t size) {
  if (ranks > coll_impl::most_uneven) {
    throw error(errc::not_supported, name,
                "on streams parts are of " + std::to_string(coll_impl::most_uneven) +
                    " ranks at most; kernels can make the call themselves for more");
  }
  const auto n = static_cast<std::size_t>(ranks);
  if (counts.size() != n || places.size() != n) {
    throw error(errc::invalid_argument, name,
                std::to_string(counts.size()) + " counts and " + std::to_string(places.size()) +
                    " places for " + std::to_string(ranks) + " ranks");
  }
  coll_impl::uneven all;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t most = std::numeric_limits<std::size_t>::max() / size / n;
    if (counts[r] > most || places[r] > most) {
      throw error(errc::invalid_argument, name,
                  std::to_string(counts[r]) + " elements at " + std::to_string(places[r]) +
                      " for rank " + std::to_string(r) + " are more than memory can have");
    }
    all.counts[r] = counts[r];
    all.places[r] = places[r];
  }
  return all;
}

std::size_t longest_of(coll::by_rank counts) {
  return *std::max_element(counts.begin(), counts.end());
}

}  // namespace

void coll::reduce_scatter_v(void* out, const void* in, by_rank counts, by_rank places,
                            data_type type, coll_op op, stream* on) {
  const auto parts = copied("reduce_scatter_v", size(), counts, places, size_of(type));
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  call c = state_->make(out, in, all);
  c.op = op;
  c.parts = &parts;
  const std::size_t bytes = all * size_of(type);
  state_->reduce(reduction_kind::reduce_scatter_v, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::all_gather_v(void* out, const void* in, by_rank counts, by_rank places, stream* on) {
  const auto parts = copied("all_gather_v", size(), counts, places, 1);
  call c = state_->make(out, in, longest_of(counts));
  c.parts = &parts;
  state_->move_uneven(coll_impl::uneven_kind::all_gather, c, on);
}

void coll::gather_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                    stream* on) {
  state_->check_root("gather_v", root);
  const auto parts = copied("gather_v", size(), counts, places, 1);
  call c = state_->make(out, in, longest_of(counts));
  c.root = root;
  c.parts = &parts;
  state_->move_uneven(coll_impl::uneven_kind::gather, c, on);
}

void coll::scatter_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                     stream* on) {
  state_->check_root("scatter_v", root);
  const auto parts = copied("scatter_v", size(), counts, places, 1);
  call c = state_->make(out, in, longest_of(counts));
  c.root = root;
  c.parts = &parts;
  state_->move_uneven(coll_impl::uneven_kind::scatter, c, on);
}

/// Nobody knows how much the others send, and all have to take as many blocks: those of a long
/// call.
void coll::all_to_all_v(void* out, const void* in, const all_to_all_plan& plan, stream* on) {
  const auto sent = copied("all_to_all_v", size(), plan.send_counts, plan.send_places, 1);
  const auto received = copied("all_to_all_v", size(), plan.receive_counts, plan.receive_places, 1);
  call c = state_->make(out, in, 0);
  c.parts = &received;
  const launch_shape shape{.blocks = state_->rules.blocks, .threads = state_->rules.threads};
  coll_impl::queue_all_to_all_v(state_->on(on), shape, sent, c);
}

// ---- sums that go on

namespace {

/// Bytes of all rows.
std::size_t checked_bytes(const char* name, std::size_t rows, std::size_t hidden,
                          std::size_t size) {
  if (hidden == 0) throw error(errc::invalid_argument, name, "rows of no elements");
  if (rows > std::numeric_limits<std::size_t>::max() / size / hidden) {
    throw error(errc::invalid_argument, name,
                std::to_string(rows) + " rows of " + std::to_string(hidden) +
                    " elements are more bytes than a number holds");
  }
  return rows * hidden * size;
}

}  // namespace

template <device::row_element T>
void coll::all_reduce_rms_norm(const device::rms_norm_rows<T>& what, stream* on) {
  constexpr const char* name = "all_reduce_rms_norm";
  const std::size_t bytes = checked_bytes(name, what.rows, what.hidden, sizeof(T));
  state::need(name, "out", what.out, what.rows);
  state::need(name, "residual_out", what.residual_out, what.rows);
  state::need(name, "in", what.in, what.rows);
  state::need(name, "residual", what.residual, what.rows);
  state::need(name, "weight", what.weight, what.rows);
  if (!(what.epsilon >= 0)) throw error(errc::invalid_argument, name, "epsilon is below zero");
  if (what.rows != 0 && (what.out == what.residual || what.out == what.residual_out)) {
    throw error(errc::invalid_argument, name, "out is the residual's memory: the sum goes there");
  }
  coll_impl::fused_call<T> c;
  c.rows = what;
  state_->queue(c, bytes, explain(c.rows.out, c.rows.in, bytes), on);
}

template <device::row_element T, device::fp8 F>
void coll::all_reduce_quantise(const device::quantise_rows<T, F>& what, stream* on) {
  constexpr const char* name = "all_reduce_quantise";
  const std::size_t bytes = checked_bytes(name, what.rows, what.hidden, sizeof(T));
  state::need(name, "out", what.out, what.rows);
  state::need(name, "sum", what.sum, what.rows);
  state::need(name, "in", what.in, what.rows);
  if (what.scales == nullptr && !(what.scale > 0 && std::isfinite(what.scale))) {
    throw error(errc::invalid_argument, name,
                "scale " + std::to_string(what.scale) + ": a finite one above zero is needed");
  }
  coll_impl::fused_call<T> c;
  c.kind = std::is_same_v<F, device::fp8_e4m3> ? coll_impl::fused_kind::e4m3
                                               : coll_impl::fused_kind::e5m2;
  c.rows.out = what.sum;
  c.rows.in = what.in;
  c.rows.rows = what.rows;
  c.rows.hidden = what.hidden;
  c.quantised = what.out;
  c.scales = what.scales;
  c.scale = what.scale;
  state_->queue(c, bytes, explain(c.rows.out, c.rows.in, bytes), on);
}

template void coll::all_reduce_rms_norm(const device::rms_norm_rows<device::half>&, stream*);
template void coll::all_reduce_rms_norm(const device::rms_norm_rows<device::bfloat16>&, stream*);
template void coll::all_reduce_rms_norm(const device::rms_norm_rows<float>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::half, device::fp8_e4m3>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::bfloat16, device::fp8_e4m3>&, stream*);
template void coll::all_reduce_quantise(const device::quantise_rows<float, device::fp8_e4m3>&,
                                        stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::half, device::fp8_e5m2>&, stream*);
template void coll::all_reduce_quantise(
    const device::quantise_rows<device::bfloat16, device::fp8_e5m2>&, stream*);
template void coll::all_reduce_quantise(const device::quantise_rows<float, device::fp8_e5m2>&,
                                        stream*);

// ---- memory of the caller

void coll::register_buffer(void* data, std::size_t bytes) {
  state_->buffers.add(data, bytes);
}
void coll::unregister_buffer(void* data) {
  state_->buffers.remove(data);
}
std::size_t coll::register_recorded() {
  return state_->buffers.register_recorded();
}
void coll::forget_recorded() {
  state_->buffers.forget_recorded();
}

void coll::check(stream* on) {
  stream& s = state_->on(on);
  const auto disagree = [&] {
    if (*state_->outcome.data() != status::invalid) return;
    throw error(errc::asymmetric, "coll",
                "ranks made different calls, or with other counts, lengths of messages, types, "
                "operations, roots or places in symmetric or registered memory");
  };
  try {
    s.sync();
  } catch (const error&) {
    disagree();  // and another rank has ended the world for it
    throw;
  }
  disagree();
  const status outcome = *state_->outcome.data();
  if (outcome == status::ok) return;
  state_->of->check();
  if (outcome == status::timeout) {
    throw error(errc::timeout, "coll", "not all ranks made the call");
  }
  throw error(errc::aborted, "coll", to_string(outcome));
}

}  // namespace crosswarp
