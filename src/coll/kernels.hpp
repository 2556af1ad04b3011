// What the host queues: one block for each channel, each with its part of the elements.
#pragma once

#include "coll/disagreement.hpp"
#include "crosswarp/coll.hpp"
#include "crosswarp/device/coll_fused.hpp"
#include "crosswarp/launch.hpp"

namespace crosswarp::coll_impl {

/// Memory of a recorded call, registered after the recording; empty until then.
struct late_memory {
  device::symmetric<std::byte> out;
  device::symmetric<std::byte> in;
};

/// Ranks whose counts and places fit into a kernel's arguments, which have 4 KiB on a GPU.
constexpr int most_uneven = 64;

/// Uneven parts, by rank.
struct uneven {
  std::size_t counts[most_uneven] = {};
  std::size_t places[most_uneven] = {};
};

/// A queued call, as its kernel gets it.
struct call {
  device::coll with;
  coll_impl::outcome* outcome = nullptr;
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  std::size_t count = 0;  ///< elements, or bytes of those that only move
  std::size_t each = 0;   ///< of them for a block, as device::sharing says
  coll_op op = coll_op::sum;
  coll_algorithm how = coll_algorithm::automatic;
  collective what = collective::none;
  data_type type = {};  ///< of reductions
  int root = 0;
  /// Not empty: the same memory as `out` and `in`, to be used without a copy.
  device::symmetric<std::byte> shared_out;
  device::symmetric<std::byte> shared_in;
  const late_memory* late = nullptr;  ///< or where that will be; in the device's memory
  std::uint32_t places = 0;           ///< which registrations these are, for ranks to agree on
  /// Of those that end in _v, for the host that queues them; their kernels get a copy.
  const uneven* parts = nullptr;

  [[nodiscard]] CW_FN description described() const noexcept {
    description d = description::of(what, count, type, op, how, root);
    d.use(shared_out, shared_in);
    return d;
  }
};

/// Queues a reduction of elements of one type; each in a file of its own.
void queue_f64(stream& on, const launch_shape& shape, const call& c);
void queue_f32(stream& on, const launch_shape& shape, const call& c);
void queue_f16(stream& on, const launch_shape& shape, const call& c);
void queue_bf16(stream& on, const launch_shape& shape, const call& c);
void queue_e4m3(stream& on, const launch_shape& shape, const call& c);
void queue_e5m2(stream& on, const launch_shape& shape, const call& c);
void queue_i32(stream& on, const launch_shape& shape, const call& c);
void queue_i64(stream& on, const launch_shape& shape, const call& c);

/// Those that move bytes, of equal parts.
void queue_move(stream& on, const launch_shape& shape, const call& c);

/// Those of call::parts.
void queue_uneven(stream& on, const launch_shape& shape, const call& c);
/// What goes to ranks, and what comes from them as call::parts.
void queue_all_to_all_v(stream& on, const launch_shape& shape, const uneven& sent, const call& c);

/// Messages of one launch. Those in one direction between the same two ranks are a lane: they go
/// one after the other, by blocks of their own.
struct messages {
  static constexpr std::size_t most = 64;
  struct one {
    std::byte* data;
    std::size_t bytes;
    int with;
    bool is_sent;
    int lane;
    int blocks;  ///< of the lane's; the others have no part in it
  };
  device::coll with;
  coll_impl::outcome* outcome = nullptr;
  one all[most];
  int count = 0;
  int lane_blocks[most];
  int lanes = 0;
};
void queue_messages(stream& on, const launch_shape& shape, const messages& m);

/// A queued sum of rows that goes on with it.
template <class T>
struct fused_call {
  device::coll with;
  coll_impl::outcome* outcome = nullptr;
  collective what = collective::rms_norm;
  coll_algorithm how = coll_algorithm::automatic;
  std::size_t each = 0;           ///< rows of a block
  int share = 0;                  ///< not 0: so many blocks share each row; see shared_row_kernel
  int warps = 0;                  ///< then, of each of them
  std::uint64_t whole = 0;        ///< what ranks have to agree on, see device::coll::channel()
  device::rms_norm_rows<T> rows;  ///< of those that are quantised: out for the sum, and in
  void* quantised = nullptr;
  float* scales = nullptr;
  float scale = 1.0F;
  /// Not empty: the same memory as `rows.out` and `rows.in`, to be used without a copy.
  device::symmetric<std::byte> shared_out;
  device::symmetric<std::byte> shared_in;

  [[nodiscard]] CW_FN description described() const noexcept {
    description d = description::of(what, rows.rows, data_type_of<T>::value, coll_op::sum, how, 0);
    d.hidden = rows.hidden;
    d.use(shared_out, shared_in);
    return d;
  }
};
/// Each type in a file of its own.
template <class T>
void queue_fused(stream& on, const launch_shape& shape, const fused_call<T>& c);

/// What the host's kernels have in common. A GPU has registers for two blocks of 256 threads on a
/// multiprocessor then, so that the next call's can be placed while this one's run.
struct kernel_rules {
  static constexpr int max_threads = 512;
  static constexpr bool place_early = true;
};

/// The elements of this block.
struct block_part {
  std::size_t begin;
  std::size_t size;
  CW_FN block_part(const device::kernel_context& k, const call& c) noexcept
      : begin(c.each * static_cast<std::size_t>(k.block_index())) {
    if (begin > c.count) begin = c.count;
    size = c.count - begin < c.each ? c.count - begin : c.each;
  }
};

/// Kernels for ranks that are all mapped know it: without what the others need they have more
/// registers, and no stack.
enum class reach : std::uint8_t { mapped, any };

/// The block's own.
template <reach Reach>
CW_FN inline device::coll channel_of(const device::kernel_context& k, const call& c) noexcept {
  const auto blocks = static_cast<std::uint64_t>(k.block_count());
  const std::uint64_t whole = (static_cast<std::uint64_t>(c.count) << 10U) | blocks;
  const device::coll own =
      c.with.channel(k.block_index(), whole ^ (static_cast<std::uint64_t>(c.places) << 32U));
  return Reach == reach::mapped ? own.mapped() : own;
}

/// The same of a call that has a block for each channel.
template <class Call>
CW_FN inline void note(const device::kernel_context& k, const Call& c, status s) noexcept {
  note(
      k, c.outcome, s, [&] { return c.described(); }, k.block_index());
}

}  // namespace crosswarp::coll_impl
