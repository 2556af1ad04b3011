// Collectives on the host: in order with a stream, for memory of the rank's device. What kernels
// call themselves is in device/coll.hpp.
//
//   cw::run(4, [](cw::world& w) {
//     cw::coll all(w);
//     cw::buffer<float> sums(w.options().device, 1000);
//     all.all_reduce(sums.data(), sums.data(), 1000);      // queued on the world's stream
//     all.check();                                         // waits; throws if it failed
//   });
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "crosswarp/device/coll.hpp"
#include "crosswarp/device/coll_fused.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp {

using device::coll_algorithm;
using device::coll_op;

/// Elements of reductions.
enum class data_type : std::uint8_t { f64, f32, f16, bf16, e4m3, e5m2, i32, i64 };

[[nodiscard]] constexpr std::size_t size_of(data_type t) noexcept {
  switch (t) {
    case data_type::f64:
    case data_type::i64:
      return 8;
    case data_type::f32:
    case data_type::i32:
      return 4;
    case data_type::f16:
    case data_type::bf16:
      return 2;
    case data_type::e4m3:
    case data_type::e5m2:
      return 1;
  }
  return 0;
}
[[nodiscard]] constexpr const char* to_string(data_type t) noexcept {
  constexpr const char* names[] = {"f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i32", "i64"};
  return names[static_cast<int>(t)];
}

template <class T>
struct data_type_of {
  static_assert(sizeof(T) == 0,
                "elements are double, float, half, bfloat16, fp8_e4m3, fp8_e5m2, int32_t, int64_t");
};

/// Bytes up to which all_reduce takes which algorithm, and how many are worth a block of their own.
/// `crosswarp tune` measures them.
struct coll_tuning {
  std::size_t push = 0;                 ///< up to here push, as far as there is room for packets
  std::size_t pull = 0;                 ///< up to here pull, then two shots
  std::size_t block = 8U << 10U;        ///< for each block; at least 256
  std::size_t long_block = 32U << 10U;  ///< the same in two shots
};

/// All ranks pass the same.
struct coll_options {
  /// Channels for calls that kernels make, see device/coll.hpp.
  int channels = 16;
  /// Of each channel of those: what one step of a long call moves.
  std::size_t shelf_bytes = 64U << 10U;
  /// The algorithm of all_reduce; automatic: by size, see explain(). Results have the same bits
  /// either way; any other makes the way to them the same for all sizes.
  coll_algorithm algorithm = coll_algorithm::automatic;
  /// Room for so many recorded calls, see register_recorded(); each takes 128 bytes of the device.
  std::size_t recorded_calls = 4096;
  /// The number of the first step; for tests of what happens when numbers wrap around.
  std::uint32_t first_epoch = 0;
  /// Rank 0's, for all. None: what it finds in the file that CROSSWARP_TUNING names, or among its
  /// user's settings; else the defaults.
  std::optional<coll_tuning> tuning = {};
};

/// Collectives of a world's ranks. Making one is collective; it takes memory of the symmetric heap,
/// on a GPU 20 to 30 MiB, and up to 80 or more where ranks are not mapped. To be destroyed by all
/// ranks, after check() on streams that are not the world's; that is collective while memory is
/// registered. Calls return when they are queued; all ranks queue the same ones in the same order,
/// but for messages, on one stream, or on several that wait for each other. Throws error; what goes
/// wrong later, check() tells.
class coll {
 public:
  /// Throws error(not_supported) when a rank can be reached by nothing; error(asymmetric) when
  /// ranks pass other options; error(invalid_argument) for a file of tuning that is none. The last
  /// two on all ranks.
  explicit coll(world& w, const coll_options& options = {});
  ~coll();
  coll(coll&&) noexcept;
  coll& operator=(coll&&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] world& of() const noexcept;
  /// Channel 0 of those that are for kernels' own calls, by value.
  [[nodiscard]] device::coll device() const noexcept;

  // ---- on a stream; the world's unless another is named. What they mean, and which may be made in
  //      place, is said in device/coll.hpp; strides are one part. What lies in the symmetric heap,
  //      or in a registered buffer, lies at the same place there on all ranks; of a call in place,
  //      the longer memory.

  void all_reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                  stream* on = nullptr);
  void reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op, int root,
              stream* on = nullptr);
  void reduce_scatter(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                      stream* on = nullptr);
  void all_gather(void* out, const void* in, std::size_t bytes, stream* on = nullptr);
  void broadcast(void* data, std::size_t bytes, int root, stream* on = nullptr);
  void gather(void* out, const void* in, std::size_t bytes, int root, stream* on = nullptr);
  void scatter(void* out, const void* in, std::size_t bytes, int root, stream* on = nullptr);
  void all_to_all(void* out, const void* in, std::size_t bytes, stream* on = nullptr);
  void barrier(stream* on = nullptr);
  /// From one rank to another; they match in the order in which each of the two queues them. Ranks
  /// that send to each other, or in a circle, do it by exchange().
  void send(const void* data, std::size_t bytes, int to, stream* on = nullptr);
  void receive(void* data, std::size_t bytes, int from, stream* on = nullptr);
  /// Messages that are under way at once, in any order of ranks; for each pair of them in the order
  /// given. They match send() and receive() too.
  /// Throws error(not_supported) when there are more than the device has room for at once.
  struct message {
    enum class direction : std::uint8_t { send, receive };
    direction way;
    void* data;
    std::size_t bytes;
    int with;
  };
  void exchange(std::span<const message> all, stream* on = nullptr);

  // Of uneven parts, of 64 ranks at most: counts and places by rank, in bytes, or of reductions in
  // elements. They are copied. All ranks pass the same counts.
  // Throw error(invalid_argument) when there are not as many as ranks, or more elements than memory
  // can have; error(not_supported) for more ranks.

  using by_rank = std::span<const std::size_t>;
  void reduce_scatter_v(void* out, const void* in, by_rank counts, by_rank places, data_type type,
                        coll_op op, stream* on = nullptr);
  void all_gather_v(void* out, const void* in, by_rank counts, by_rank places,
                    stream* on = nullptr);
  void gather_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                stream* on = nullptr);
  void scatter_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                 stream* on = nullptr);
  /// What goes to each rank, and what comes from each.
  struct all_to_all_plan {
    by_rank send_counts;
    by_rank send_places;
    by_rank receive_counts;
    by_rank receive_places;
  };
  void all_to_all_v(void* out, const void* in, const all_to_all_plan& plan, stream* on = nullptr);

  template <class T>
  void all_reduce(T* out, const T* in, std::size_t count, coll_op op = coll_op::sum,
                  stream* on = nullptr) {
    all_reduce(out, in, count, data_type_of<T>::value, op, on);
  }

  /// For half, bfloat16 and float; see device/coll_fused.hpp. A block makes whole rows, and what
  /// explain() says of `out`, or `sum`, and `in` holds for the sum.
  /// Throws error(invalid_argument) for memory that is missing, rows of no elements, more of them
  /// than memory can have, and an epsilon or a scale that is none.
  template <device::row_element T>
  void all_reduce_rms_norm(const device::rms_norm_rows<T>& what, stream* on = nullptr);
  template <device::row_element T, device::fp8 F>
  void all_reduce_quantise(const device::quantise_rows<T, F>& what, stream* on = nullptr);

  /// What all_reduce does for so many bytes, and why.
  struct choice {
    coll_algorithm algorithm;
    int blocks;
    bool direct;  ///< on symmetric or registered memory, without a copy
    std::string why;
  };
  [[nodiscard]] choice explain(const void* out, const void* in, std::size_t bytes) const;

  // ---- memory of the caller that is to be used in place, as symmetric memory is. All of these are
  //      collective and wait for the world's stream; work on other streams is to be done. When they
  //      throw, they do on all ranks, and nothing has changed.

  /// Each rank's own memory, `bytes` on each, for calls on any part of it. What lies in the
  /// symmetric heap needs no registering. Nobody writes it meanwhile, and it has to live until it
  /// is unregistered. Throws error(invalid_argument) for null, no bytes, and memory that is
  /// registered already; error(asymmetric) when ranks' lengths differ, or their addresses modulo
  /// 16; error(not_supported) for what the other ranks cannot be given: memory of another device,
  /// and between processes all but cudaMalloc's and whole pages of a CPU, see registration.
  void register_buffer(void* data, std::size_t bytes);
  /// `data`: its first byte. What was recorded with it is not to be replayed any more.
  void unregister_buffer(void* data);

  /// While a stream is recorded nothing can be registered. So all_reduce leaves a place for other
  /// ranks' addresses where it would be direct if its memory were registered. This fills in all
  /// those since the last time: what was recorded goes through the communicator's memory before,
  /// and directly after. Returns how many calls. Their memory has to live until forget_recorded(),
  /// or as long as this object.
  /// Throws as register_buffer(); what was recorded goes on through the communicator's memory.
  std::size_t register_recorded();
  /// Nothing that was recorded with such calls is to be replayed any more.
  void forget_recorded();

  /// Waits for the stream. Throws what has gone wrong: error(asymmetric) when ranks called
  /// different things, with a rank that did and, when it is mapped, what; error(timeout, peer_lost,
  /// aborted). Then this object is of no more use.
  void check(stream* on = nullptr);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

template <>
struct data_type_of<double> {
  static constexpr auto value = data_type::f64;
};
template <>
struct data_type_of<float> {
  static constexpr auto value = data_type::f32;
};
template <>
struct data_type_of<device::half> {
  static constexpr auto value = data_type::f16;
};
template <>
struct data_type_of<device::bfloat16> {
  static constexpr auto value = data_type::bf16;
};
template <>
struct data_type_of<device::fp8_e4m3> {
  static constexpr auto value = data_type::e4m3;
};
template <>
struct data_type_of<device::fp8_e5m2> {
  static constexpr auto value = data_type::e5m2;
};
template <>
struct data_type_of<std::int32_t> {
  static constexpr auto value = data_type::i32;
};
template <>
struct data_type_of<std::int64_t> {
  static constexpr auto value = data_type::i64;
};

}  // namespace crosswarp
