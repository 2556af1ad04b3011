// A receive queue that several endpoints share: whichever a message comes to, takes the next
// receive of it. So few receives serve many endpoints.
//
//   const posted p = all.post_recv(me, mine.local(), bytes);
//   status s = all.update_dbr_record(me);
//   const completion c = ep.wait_recv(me);   // of any endpoint that takes from it; c.index ==
//   p.index
//
// crosswarp::rdma::shared_receive_queue makes one, endpoint_options::receives says who takes from
// it. Several threads, warps and blocks may use it at a time.
#pragma once

#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

/// Got from crosswarp::rdma::shared_receive_queue::device(), passed to kernels by value, valid
/// while that lives.
template <class Provider>
class basic_shared_receive_queue {
 public:
  struct parts {
    typename Provider::shared_queue queue;
    work_queue posts;
    std::uint64_t* taken = nullptr;  ///< see shared_places
    std::uint32_t sge = 1;
    wait_limits limits;
  };

  basic_shared_receive_queue() = default;
  CW_FN explicit basic_shared_receive_queue(const parts& p) noexcept : p_(p) {}
  /// The same with other limits.
  [[nodiscard]] CW_FN basic_shared_receive_queue within(const wait_limits& limits) const noexcept {
    basic_shared_receive_queue other = *this;
    other.p_.limits = limits;
    return other;
  }
  [[nodiscard]] CW_FN const parts& made_of() const noexcept { return p_; }

  /// Where a message goes that comes to any of the endpoints. When the queue is full it waits until
  /// somebody reads the completion of the oldest.
  /// Callers: all threads of `g`, same arguments.     Fails: timeout, peer_lost, aborted.
  template <group G>
  [[nodiscard]] CW_FN posted post_recv(const G& g, local_memory to,
                                       std::uint32_t bytes) const noexcept;
  /// The same into several pieces, each filled before the next: up to
  /// shared_receive_queue_options::sge, none of them empty; else invalid.
  template <group G>
  [[nodiscard]] CW_FN posted post_recv(const G& g, const segment_list& to) const noexcept;
  /// The adapter may use what was posted before.
  /// Callers: all threads of `g`; they sync first.    Fails: as above.
  template <group G>
  [[nodiscard]] CW_FN status update_dbr_record(const G& g) const noexcept;

 private:
  CW_FN void collect_taken() const noexcept;

  parts p_;
};

using shared_receive_queue = basic_shared_receive_queue<mlx5_provider>;

}  // namespace crosswarp::device::rdma

#include "crosswarp/device/impl/rdma_shared_impl.hpp"
