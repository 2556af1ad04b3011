// One place of the table: the host's side of the words and rings that it shares with kernels.
// Knows nothing of descriptors. Believes nothing that a kernel wrote.
#pragma once

#include <sys/uio.h>

#include <array>
#include <span>

#include "crosswarp/device/socket.hpp"
#include "ring_pool.hpp"

namespace crosswarp::socket_impl {

using device::socket::handle;
using device::socket::mark;

struct ring_limits {
  unsigned first_log2 = 14;
  unsigned most_log2 = 18;
};

class slot {
 public:
  slot(const device::socket::memory& m, ring_pool& pool, ring_limits limits, std::uint32_t index)
      : m_(&m), pool_(&pool), limits_(limits), index_(index) {
    keep(true);
  }
  ~slot() { keep(false); }
  slot(const slot&) = delete;
  slot& operator=(const slot&) = delete;

  [[nodiscard]] handle who() const noexcept { return {index_, generation_}; }

  /// A new life; false when there is no memory for its rings.
  bool begin(bool listener);
  /// Kernels do not use it any more, and what they still send is of no interest.
  void end();

  // ---- what a kernel said
  /// Takes in a bell that has changed. False when it says what cannot be.
  bool hear(mark bell);
  [[nodiscard]] bool is_taken() const noexcept { return bell_.has(device::socket::taken); }
  [[nodiscard]] bool is_finished() const noexcept { return bell_.has(device::socket::finished); }
  [[nodiscard]] bool is_closed() const noexcept { return bell_.has(device::socket::closed); }
  [[nodiscard]] bool is_reset() const noexcept { return bell_.has(device::socket::reset); }
  /// The host closes it in the kernel's place, which has ended.
  void close(unsigned how = device::socket::closed) noexcept {
    bell_ = mark(bell_.position(), bell_.flags() | how);
  }
  [[nodiscard]] std::uint64_t bell_position() const noexcept { return bell_.position(); }

  // ---- receiving
  /// Looks what was read. False when it says what cannot be.
  bool look_at_drained();
  /// Room in the ring, at most `most` bytes; a larger ring takes the place of one that was filled.
  std::span<iovec> receive_space(std::uint64_t most);
  /// No room, and none was to be had; as far as look_at_drained() saw.
  [[nodiscard]] bool is_full() const noexcept;
  [[nodiscard]] bool has_unread() const noexcept { return received_ != drained_; }
  void note_received(std::uint64_t bytes);
  /// The stream ends here, or with the error that was set.
  void end_received();
  [[nodiscard]] bool has_ended() const noexcept {
    return (receive_flags_ & (device::socket::ended | device::socket::failed)) != 0;
  }
  /// Of a listener: the next connection for accept(). Its ring has room for `connections()`.
  std::uint64_t push(handle connection);
  [[nodiscard]] std::uint64_t connections() const noexcept;

  // ---- sending
  /// What is to be sent next, at most `most` bytes.
  std::span<iovec> to_send(std::uint64_t most);
  [[nodiscard]] bool has_to_send() const noexcept { return sent_ != bell_.position(); }
  void note_sent(std::uint64_t bytes);
  void note_connected();
  /// Nothing more will be sent. `error` is what the next call returns, once.
  void break_send(int error);
  [[nodiscard]] bool is_broken() const noexcept;
  /// Kernels send nothing more; what they have sent leaves.
  void refuse_send();
  /// The first one holds.
  void set_error(int error);
  [[nodiscard]] bool has_error() const noexcept { return error_ != 0; }

  /// Kernels may go around TCP from now on.
  void offer_lane(device::socket::lane_link l);

  [[nodiscard]] device::socket::names& called() const noexcept { return m_->called[index_]; }

 private:
  struct ring {
    std::uint64_t offset = 0;
    unsigned log2 = 0;
    std::uint64_t from = 0;  ///< the first position in it
    bool there = false;
    [[nodiscard]] std::uint64_t bytes() const noexcept { return std::uint64_t{1} << log2; }
  };
  [[nodiscard]] std::uint64_t receive_room() const noexcept;
  void keep(bool on) noexcept;
  [[nodiscard]] bool take_first(ring& r, std::uint64_t from);
  [[nodiscard]] bool take_larger(ring& r, unsigned log2, std::uint64_t from);
  void give_back(ring& r);
  std::span<iovec> cut(const ring& r, std::uint64_t at, std::uint64_t bytes);
  void bring(const ring& r, std::uint64_t at, std::uint64_t bytes);
  void fetch(const ring& r, std::uint64_t at, std::uint64_t bytes);
  void grow_receive();
  void offer_send_ring();
  [[nodiscard]] bool is_possible(std::uint64_t head);
  void settle_send_ring();
  void tell_received();
  void tell_sent();
  void tell_activity() const;

  const device::socket::memory* m_;
  ring_pool* pool_;
  ring_limits limits_;
  std::uint32_t index_;
  std::uint32_t generation_ = 0;
  bool keeps_ = false;
  mark bell_;
  int error_ = 0;
  std::array<iovec, 2> spans_{};

  // Receiving: the newest ring, and the one before it until it is drained.
  std::uint64_t received_ = 0;
  std::uint64_t drained_ = 0;
  std::uint64_t offered_ = 0;  ///< by receive_space()
  bool filled_ = false;        ///< all of that was used: a larger ring may take more at a time
  unsigned receive_flags_ = 0;
  unsigned receive_rings_ = 0;  ///< how many there were
  std::array<ring, 2> receive_;
  std::size_t newest_ = 0;

  // Sending: the ring that is emptied, and one that the kernel moves to or is to move to.
  std::uint64_t sent_ = 0;
  std::uint64_t fetched_ = 0;  ///< up to here bytes are where Linux reads them
  unsigned send_flags_ = 0;
  bool refuses_ = false;  ///< to kernels it is broken, to this side not
  ring send_;
  ring next_;
  bool moved_ = false;  ///< the kernel is in `next_` from `next_.from` on
  unsigned epoch_ = 0;
};

}  // namespace crosswarp::socket_impl
