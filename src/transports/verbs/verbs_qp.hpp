// A queue pair of an ibverbs device that stands behind a kernel's queues: it forwards entries and
// receives to the device, and completions to the kernel.
//
// Used by one thread at a time.
#pragma once

#include <deque>

#include "crosswarp/buffer.hpp"
#include "transports/verbs/entry.hpp"
#include "transports/verbs/nic_queues.hpp"
#include "transports/verbs/verbs_context.hpp"
#include "transports/verbs/verbs_shared.hpp"

namespace crosswarp::verbs {

class verbs_qp {
 public:
  /// `shared`: where receives come from; null: from its own queue.
  /// Throws error(system), error(invalid_argument).
  verbs_qp(std::shared_ptr<verbs_context> c, const qp_setup& s, const verbs_shared* shared);

  [[nodiscard]] std::uint32_t qpn() const noexcept { return pair_->qp_num; }
  [[nodiscard]] std::uint64_t* doorbell() const noexcept { return bell_.data(); }
  [[nodiscard]] const endpoint_address& address() const noexcept { return self_; }
  [[nodiscard]] endpoint_state state() const noexcept { return state_; }
  [[nodiscard]] bool is(const ibv_qp* pair) const noexcept { return pair_.get() == pair; }

  /// Throws error(invalid_argument), error(not_supported), error(system).
  void connect(const endpoint_address& peer);
  /// Does what there is to do; false when there was nothing.
  bool step();
  /// The device says that it failed.
  void mark_failed();

 private:
  /// An entry that was read and is not complete.
  struct pending {
    std::uint64_t index = 0;
    std::uint32_t blocks = 1;
    mlx5::opcode op = mlx5::opcode::nop;
    bool signalled = false;
    bool forwarded = false;  ///< the device will tell of its end
    std::uint32_t bytes = 0;
    mlx5::syndrome refused = mlx5::syndrome::none;  ///< it cannot be forwarded
  };

  // ---- entries
  bool hear_bell();
  void refuse_next();
  bool forward_entries();
  [[nodiscard]] mlx5::syndrome forward(const entry& e);
  [[nodiscard]] std::uint64_t keep_inline(const entry& e);
  bool take_sent();
  bool end_what_was_not_forwarded();
  void end_oldest(mlx5::syndrome why, std::uint8_t vendor);
  bool flush_entries();

  // ---- receives
  bool forward_receives();
  bool take_received();
  bool flush_receives();
  bool end_shared();

  void complete(completion_writer& to, const cqe_values& v);
  void modify(const transition& t, const char* what);

  std::shared_ptr<verbs_context> context_;
  qp_setup setup_;
  bool shares_ = false;     ///< receives are not its own
  bool told_last_ = false;  ///< that none of those comes any more
  buffer<std::uint64_t> bell_;
  std::uint64_t bell_seen_ = 0;
  std::vector<std::byte> inline_data_;  ///< of entries under way, a place for each
  std::size_t inline_place_ = 0;        ///< bytes of a place
  owned<ibv_mr> inline_region_;
  owned<ibv_cq> send_queue_;
  owned<ibv_cq> receive_queue_;
  owned<ibv_qp> pair_;  // ends before its completion queues do
  std::uint32_t most_sends_ = 0;
  std::uint32_t most_receives_ = 0;
  std::uint32_t most_segments_ = 0;
  std::uint32_t most_pieces_ = 0;  ///< of a receive
  endpoint_address self_;
  endpoint_state state_ = endpoint_state::made;
  completion_writer sent_;
  completion_writer received_;

  std::uint64_t target_ = 0;  ///< rung for
  std::uint64_t head_ = 0;    ///< the next entry to be read
  std::uint64_t done_ = 0;    ///< complete up to here
  bool refused_ = false;      ///< what follows is not forwarded
  std::uint64_t forwarded_ = 0;
  std::deque<pending> pending_;
  std::uint32_t at_device_ = 0;  ///< of those, how many the device has
  entry now_;

  std::uint64_t next_receive_ = 0;  ///< to be forwarded
  std::uint64_t receives_done_ = 0;
};

}  // namespace crosswarp::verbs
