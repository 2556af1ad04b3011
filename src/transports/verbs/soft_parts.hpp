// What a soft NIC keeps of its queue pairs.
#pragma once

#include "crosswarp/buffer.hpp"
#include "exec/backends.hpp"
#include "transports/verbs/soft_nic.hpp"

namespace crosswarp::verbs {

struct nic_call {
  soft_nic& nic;
  std::atomic<bool>& rang;  ///< one of the group that its doorbell is of
};

/// A request without an answer.
struct soft_nic::flight {
  std::uint64_t index = 0;  ///< of its entry
  std::uint32_t blocks = 1;
  mlx5::opcode op = mlx5::opcode::nop;
  bool signalled = false;
  bool last = true;          ///< of its entry
  std::uint32_t total = 0;   ///< bytes of the entry
  std::uint32_t offset = 0;  ///< of these, before it
  std::uint32_t bytes = 0;
};

/// Receives that queue pairs share.
struct soft_nic::shared_queue {
  shared_setup setup;
  std::uint64_t taken = 0;  ///< how many, ever
  std::uint32_t place = 0;  ///< of the next
};

struct soft_nic::qp {
  qp(const qp_setup& s, const nic_call& c)
      : setup(s),
        call(c),
        sent(s.queues.sent, s.events, completion_writer::of::sends),
        received(s.queues.received, s.events, completion_writer::of::receives) {}

  qp_setup setup;
  nic_call call;
  std::uint32_t qpn = 0;
  bell_page* page = nullptr;
  std::size_t bell = 0;
  endpoint_state state = endpoint_state::made;
  station self;
  station peer;
  completion_writer sent;
  completion_writer received;

  // Requester. Requests from `oldest` up to `psn` are under way.
  static constexpr std::uint32_t window = 16;
  std::uint64_t head = 0;    ///< the first entry that is not complete
  std::uint64_t next = 0;    ///< the entry to be sent
  std::uint32_t offset = 0;  ///< how much of it was sent
  std::uint64_t target = 0;  ///< rung for
  bool delayed = false;      ///< the entry at `next` has had its delay
  bool active = false;       ///< in the list of those
  std::uint32_t oldest = 0;
  std::uint32_t psn = 0;
  std::array<flight, window> flights;  ///< by psn
  int retries = 0;
  int not_ready = 0;
  clock::time_point not_before{};
  clock::time_point answer_by{};  ///< for the oldest

  [[nodiscard]] std::uint32_t under_way() const noexcept { return psn - oldest; }
  [[nodiscard]] flight& at(std::uint32_t n) noexcept { return flights[n % window]; }

  // Responder.
  std::uint64_t next_receive = 0;
  shared_queue* shared = nullptr;     ///< where receives come from, if not from its own
  std::optional<std::uint32_t> held;  ///< the place of the one for a message that has begun
  bool told_last = false;             ///< that none of those comes any more
  std::uint32_t expected = 0;         ///< psn of the next request
};

/// Doorbells of queue pairs whose kernels run on one device, next to each other so that to look at
/// all of them takes little.
struct soft_nic::bell_page {
  static constexpr std::size_t capacity = 1024;
  static constexpr std::size_t of_group = 64;  ///< those that a call speaks of
  bell_page(device_ref d, soft_nic& nic)
      : device(d),
        calls(d.kind() == device_kind::cpu),
        words(d, capacity, memory_kind::pinned),
        launches(exec::on_launch(d, [&nic] { nic.expect_bells(); })) {
    words.write(std::vector<std::uint64_t>(capacity));
  }
  device_ref device;
  bool calls;  ///< its kernels call after a ring
  std::array<std::atomic<bool>, capacity / of_group> rang{};
  buffer<std::uint64_t> words;
  std::array<std::uint64_t, capacity> seen{};
  std::vector<qp*> owners;         ///< null: free; up to the last that is not
  std::shared_ptr<void> launches;  ///< while it lives, they wake the NIC
};

}  // namespace crosswarp::verbs
