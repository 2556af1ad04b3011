// The adapter of rdma.cpp: a kernel thread that does what an adapter does, as far as threads can
// see it.
#pragma once

#include "crosswarp/device/rdma.hpp"

namespace rdma_model {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
using cw::status;
using dev::rdma::completion;
using context = dev::kernel_context;
using view = dev::rdma::endpoint;
using shared_view = dev::rdma::shared_receive_queue;

constexpr std::uint32_t depth = 4;
constexpr std::uint32_t qpn = 0x77;
constexpr int most_producers = 3;
constexpr std::uint32_t receive_bytes = 24;
constexpr std::uint32_t few = 2;  // places for completions of receives: fewer than receives
// An entry of two blocks begins and ends with the same words.
constexpr std::uint32_t long_words = 11;
constexpr int most_waits = 6;

/// How a wait for the entry at `index` ended.
struct ended {
  std::uint64_t index;
  status outcome;
  mlx5::syndrome why;
};

struct report {
  status outcome[most_producers];
  status adapter;
  int wrong;                 ///< the first thing that was, by number
  int seen[most_producers];  ///< entries, in order
  int finished;              ///< producers
  ended waits[most_producers][most_waits];
  int waited[most_producers];  ///< so many of them
};

/// How the adapter behaves.
struct habits {
  bool by_record = false;  ///< looks at the doorbell record and needs no doorbell
  int fail_at = -1;        ///< the entry that fails, and with it all behind it
  int room = -1;           ///< completions of sends; then an event says that there is none left
  std::uint32_t places = depth;  ///< of the send queue: from 8 on, not all of them are signalled
};

/// What an adapter does, as far as threads can see it.
class model_adapter {
 public:
  CW_FN model_adapter(const view& ep, habits h, report* r) noexcept
      : p_(ep.made_of()), h_(h), r_(r) {}

  /// Until all producers have ended, and everything is carried out.
  CW_FN status run(int producers) noexcept {
    status s = status::ok;
    bool last = false;
    while (s == status::ok && !last) {
      std::uint64_t target = head_;
      s = dev::poll_until(
          [&] {
            // Before the look at the doorbell: then nothing can come after it.
            last = dev::device_atomic<int>(r_->finished).load(dev::order::acquire) == producers;
            target = h_.by_record ? recorded() : rung();
            take_receives();
            return target != head_ || last;
          },
          dev::wait_limits{});
      while (head_ < target && r_->wrong == 0) carry_out();
      if (head_ > target) note(10);
    }
    return s;
  }

  /// A message used a shared receive; false when there is no place to say so.
  CW_FN bool deliver(std::uint64_t index) noexcept {
    if (!has_room(p_.queues.received, received_)) return false;
    complete(p_.queues.received, received_++, index % depth, mlx5::cqe_opcode::responder_send_imm,
             static_cast<std::uint32_t>(index));
    return true;
  }

 private:
  [[nodiscard]] CW_FN std::uint64_t recorded() const noexcept {
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::send])
            .load(dev::order::acquire);
    return mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), head_);
  }
  [[nodiscard]] CW_FN std::uint64_t rung() noexcept {
    const std::uint64_t bell =
        dev::system_atomic<std::uint64_t>(*p_.queues.doorbell).load(dev::order::acquire);
    if (bell == 0) return head_;
    const std::uint64_t target = mlx5::extended(mlx5::doorbell_index(bell), head_);
    // Relaxed: who sees the doorbell sees the record and the entries.
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::send])
            .load(dev::order::relaxed);
    const auto far = mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), head_);
    if (mlx5::doorbell_qpn(bell) != qpn) note(1);
    if (target - head_ > p_.send.depth || far - head_ > p_.send.depth) note(2);
    if (far < target) note(3);
    return r_->wrong == 0 ? target : head_;
  }

  /// Fills every receive that was posted, as far as there are places for completions.
  CW_FN void take_receives() noexcept {
    const auto record =
        dev::system_atomic<std::uint32_t>(p_.queues.record->counter[mlx5::qp_record::receive])
            .load(dev::order::acquire);
    const auto posted =
        mlx5::extended(static_cast<std::uint16_t>(mlx5::swapped(record)), next_receive_);
    if (posted - next_receive_ > depth) note(8);
    for (; next_receive_ != posted && has_room(p_.queues.received, received_) && r_->wrong == 0;
         ++next_receive_) {
      const mlx5::data_segment& s = p_.queues.receive[next_receive_ % depth];
      if (mlx5::swapped(s.byte_count) != receive_bytes) note(9);
      complete(p_.queues.received, received_++, next_receive_, mlx5::cqe_opcode::responder_send_imm,
               static_cast<std::uint32_t>(next_receive_));
    }
  }

  /// Of the entry at the head.
  [[nodiscard]] CW_FN const std::byte* bytes_at(std::size_t offset) const noexcept {
    const std::uint64_t block = head_ + offset / mlx5::block_bytes;
    return p_.queues.send + block % p_.send.depth * mlx5::block_bytes + offset % mlx5::block_bytes;
  }
  /// Who wrote it says so in the data: producer and number.
  CW_FN void check_data(std::uint32_t blocks) noexcept {
    constexpr std::size_t begin = 36;
    const auto* data = reinterpret_cast<const std::uint32_t*>(bytes_at(begin));
    if (data[0] >= most_producers || static_cast<int>(data[1]) != r_->seen[data[0]]++) note(6);
    if (blocks == 1) return;
    const auto* last =
        reinterpret_cast<const std::uint32_t*>(bytes_at(begin + (long_words - 2) * 4));
    if (last[0] != data[0] || last[1] != data[1]) note(11);
  }

  CW_FN void carry_out() noexcept {
    const auto& head = *reinterpret_cast<const mlx5::ctrl_segment*>(bytes_at(0));
    const std::uint32_t first = mlx5::swapped(head.opmod_idx_opcode);
    const std::uint32_t number = mlx5::swapped(head.qpn_ds);
    const std::uint32_t blocks = mlx5::blocks_of(number & 0xffU);
    if (((first >> 8U) & 0xffffU) != (head_ & 0xffffU)) note(4);
    if (number >> 8U != qpn) note(5);
    if (static_cast<mlx5::opcode>(first & 0xffU) == mlx5::opcode::rdma_write) check_data(blocks);
    const bool fails = h_.fail_at >= 0 && head_ >= static_cast<std::uint64_t>(h_.fail_at);
    if (fails) {
      tell(mlx5::cqe_opcode::requester_error);
    } else if ((head.fm_ce_se & mlx5::ctrl_cq_update) != 0) {
      tell(mlx5::cqe_opcode::requester);
    }
    head_ += blocks;
  }

  CW_FN void tell(mlx5::cqe_opcode what) noexcept {
    if (h_.room >= 0 && sent_ == static_cast<std::uint64_t>(h_.room)) {
      auto& failed = const_cast<std::uint64_t&>(p_.events->failed);
      dev::system_atomic<std::uint64_t>(failed).store(
          static_cast<std::uint64_t>(mlx5::syndrome::local_qp_operation), dev::order::release);
      return;
    }
    complete(p_.queues.sent, sent_++, head_, what, 0);
  }

  [[nodiscard]] CW_FN static bool has_room(const dev::rdma::mlx5_provider::completion_queue& q,
                                           std::uint64_t number) noexcept {
    const auto read = mlx5::swapped(
        dev::system_atomic<std::uint32_t>(q.record->counter[0]).load(dev::order::acquire));
    return q.collapsed || number - read < q.depth;
  }

  CW_FN void complete(const dev::rdma::mlx5_provider::completion_queue& q, std::uint64_t number,
                      std::uint64_t index, mlx5::cqe_opcode what, std::uint32_t imm) noexcept {
    if (!has_room(q, number)) note(7);
    mlx5::cqe64& place = q.entries[q.collapsed ? 0 : number % q.depth];
    const std::uint64_t owner = !q.collapsed && (number & q.depth) != 0 ? 1 : 0;
    const std::uint64_t counter = mlx5::swapped(static_cast<std::uint16_t>(index));
    if (what == mlx5::cqe_opcode::responder_send_imm) {
      place.words[4] = static_cast<std::uint64_t>(mlx5::swapped(imm)) << 32U;  // ordered by both
    } else if (what == mlx5::cqe_opcode::requester_error) {
      const bool first = index == static_cast<std::uint64_t>(h_.fail_at);
      const auto why = first ? mlx5::syndrome::remote_access : mlx5::syndrome::flushed;
      dev::system_atomic<std::uint64_t>(place.words[6])
          .store(static_cast<std::uint64_t>(why) << 56U, dev::order::relaxed);
    }
    const std::uint64_t own = static_cast<std::uint64_t>(what) << 4U | owner;
    dev::system_atomic<std::uint64_t>(place.words[7])
        .store(counter << 32U | own << 56U, dev::order::release);
  }

  CW_FN void note(int what) noexcept {
    if (r_->wrong == 0) r_->wrong = what;
  }

  view::parts p_;
  habits h_;
  report* r_;
  std::uint64_t head_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t next_receive_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace rdma_model
