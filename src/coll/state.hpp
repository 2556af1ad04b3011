// What a communicator holds, and what all its calls share.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>

#include "coll/channels.hpp"
#include "coll/kernels.hpp"
#include "coll/registry.hpp"
#include "coll/shape.hpp"
#include "coll/tuning.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp {

using coll_impl::call;

struct coll::state {
  state(world& w, const coll_options& o)
      : of(&w),
        options(o),
        tuning(coll_impl::agree_on_tuning(w, o)),
        rules(
            coll_impl::rules_for(w.options().device.kind(), w.size(), tuning.room, tuning.values)),
        runs(w.options().device, std::span<const int>(coll_impl::runs_of(w))),
        queued(w, coll_impl::sizes_for(w, {rules.blocks, rules.shelf, rules.packet_bytes / 8}),
               runs, o.first_epoch),
        own(w, coll_impl::sizes_for(w, {o.channels, o.shelf_bytes, rules.push_per_block / 8}), runs,
            o.first_epoch),
        outcome(w.options().device, 1, memory_kind::pinned),
        notices(w, 1),
        buffers(w, o.recorded_calls) {
    coll_impl::outcome none;
    none.failed = queued.failed_word();
    none.channel_bytes = queued.channel_bytes;
    none.notices = notices.device();
    none.limits = queued.view.limits;
    *outcome.data() = none;
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

  [[nodiscard]] launch_shape shape_for(std::size_t bytes, int blocks, bool pushes) const {
    return coll_impl::shape_for(rules, bytes, blocks, pushes);
  }

  // What all_reduce does, without the words for it: each call asks.
  enum class reason : std::uint8_t {
    asked,
    push_unmapped,
    push_no_room,
    short_afar,
    long_afar,
    long_ring,
    shortest,
    middle,
    long_one,
  };
  struct chosen {
    coll_algorithm algorithm;
    int blocks;
    bool direct;
    reason why;
  };
  [[nodiscard]] chosen choose(const void* out, const void* in, std::size_t bytes) const;
  /// For packets of so many bytes, in as many blocks as they get.
  [[nodiscard]] std::size_t room_to_push(std::size_t bytes) const;

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

  /// Of `count` elements; sums and roundings of it stay in range.
  static std::size_t bytes_of(const char* name, std::size_t count, std::size_t size) {
    if (count > coll_impl::most_bytes / size) {
      throw error(errc::invalid_argument, name,
                  std::to_string(count) + " elements are more than memory can have");
    }
    return count * size;
  }
  /// Of as many for each rank.
  [[nodiscard]] std::size_t bytes_of_all(const char* name, std::size_t count,
                                         std::size_t size) const {
    const auto ranks = static_cast<std::size_t>(of->size());
    return bytes_of(name, count, size * ranks);
  }

  void check_root(const char* name, int root) const {
    if (root < 0 || root >= of->size()) {
      throw error(errc::invalid_argument, name,
                  "no rank " + std::to_string(root) + " among " + std::to_string(of->size()));
    }
  }

  void move(coll_impl::collective what, call c, stream* named) const {
    c.what = what;
    const int blocks = what == coll_impl::collective::barrier ? 1 : blocks_for(c.count);
    c.each = device::sharing<std::byte>(c.count, blocks).size(0);
    coll_impl::queue_move(on(named), shape_for(c.count, blocks, false), c);
  }

  void move_uneven(coll_impl::collective what, call c, stream* named) const {
    c.what = what;
    const launch_shape shape = shape_for(c.count, blocks_for(c.count), false);
    coll_impl::queue_uneven(on(named), shape, c);
  }

  void reduce(coll_impl::collective what, call c, data_type type, const launch_shape& shape,
              stream* named) const {
    const bool on_bits =
        c.op == coll_op::bit_and || c.op == coll_op::bit_or || c.op == coll_op::bit_xor;
    if (on_bits && type != data_type::i32 && type != data_type::i64) {
      throw error(errc::invalid_argument, "coll",
                  std::string(to_string(c.op)) + " of " + to_string(type));
    }
    c.what = what;
    c.type = type;
    // In bytes, so that there is one for all types.
    const std::size_t size = size_of(type);
    c.each = device::sharing<std::byte>(c.count * size, shape.blocks).size(0);
    c.each = c.each < c.count * size ? c.each / size : c.count;
    constexpr std::array queues = {&coll_impl::queue_f64,  &coll_impl::queue_f32,
                                   &coll_impl::queue_f16,  &coll_impl::queue_bf16,
                                   &coll_impl::queue_e4m3, &coll_impl::queue_e5m2,
                                   &coll_impl::queue_i32,  &coll_impl::queue_i64};
    queues[static_cast<std::size_t>(type)](on(named), shape, c);
  }

  /// Messages that are under way at once.
  void queue(const char* name, std::span<const message> all, stream* named) const;
  /// Whole rows for each block; all the rest is as all_reduce has it for as many bytes.
  template <class T>
  void queue(coll_impl::fused_call<T> c, std::size_t bytes, const chosen& how, stream* named) const;

  world* of;
  coll_options options;
  coll_impl::chosen_tuning tuning;
  coll_impl::shape_rules rules;
  buffer<int> runs;               // see runs_of()
  coll_impl::channel_set queued;  // for what the host queues
  coll_impl::channel_set own;     // for what kernels call
  buffer<coll_impl::outcome> outcome;
  symmetric_buffer<coll_impl::notice> notices;
  coll_impl::registry buffers;
};

}  // namespace crosswarp
