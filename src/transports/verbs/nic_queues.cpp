#include "transports/verbs/nic_queues.hpp"

#include <cstring>
#include <iterator>

#include "core/log.hpp"

namespace crosswarp::verbs {

using mlx5::swapped;

std::optional<std::uint64_t> rung_until(std::uint64_t bell,
                                        const device::rdma::mlx5_provider::queues& q,
                                        std::uint32_t qpn, std::uint64_t done,
                                        std::uint32_t depth) noexcept {
  const std::uint64_t rung = mlx5::extended(mlx5::doorbell_index(bell), done);
  // Before the doorbell, so it is at least as far. pairs with mlx5_provider::write_send_record()
  const auto record = static_cast<std::uint16_t>(
      swapped(shared(q.record->counter[mlx5::qp_record::send]).load(std::memory_order_acquire)));
  const std::uint64_t recorded = mlx5::extended(record, done);
  const bool sound = mlx5::doorbell_qpn(bell) == qpn && rung - done <= depth &&
                     recorded - done <= depth && recorded >= rung;
  return sound ? std::optional(rung) : std::nullopt;
}

std::uint64_t posted_until(mlx5::qp_record& record, std::uint64_t done,
                           std::uint32_t depth) noexcept {
  // pairs with mlx5_provider::write_receive_record(), write_shared_record()
  const auto counter = static_cast<std::uint16_t>(
      swapped(shared(record.counter[mlx5::qp_record::receive]).load(std::memory_order_acquire)));
  const std::uint64_t posted = mlx5::extended(counter, done);
  return posted - done <= depth ? posted : done;
}

bool completion_writer::is_full() const noexcept {
  if (queue_.collapsed) return false;
  // pairs with mlx5_provider::write_cq_record(): the place has been read
  const std::uint32_t read = swapped(shared(queue_.record->counter[mlx5::cq_record::consumer_index])
                                         .load(std::memory_order_acquire));
  return ((written_ - read) & 0xffffffU) >= queue_.depth;
}

bool completion_writer::tell(std::uint32_t qpn, const cqe_values& v) {
  if (overrun_) return false;
  if (!is_full()) {
    write(qpn, v);
    return true;
  }
  // There is no place to say it in: kernels look at the events now and then.
  overrun_ = true;
  shared(events_->failed)
      .store(static_cast<std::uint64_t>(mlx5::syndrome::local_qp_operation),
             std::memory_order_release);  // pairs with failed_event()
  if (of_ == of::receives) {
    shared(events_->no_receives)
        .store(1, std::memory_order_release);  // pairs with hears_no_receives()
  }
  log::error(-1, "rdma: the completion queue of ", of_ == of::sends ? "sends" : "receives",
             " of endpoint ", qpn,
             " is full: completions are not read, or update_cq_dbr_record() is missing");
  return false;
}

void completion_writer::write(std::uint32_t qpn, const cqe_values& v) noexcept {
  const bool error = v.why != mlx5::syndrome::none;
  std::byte bytes[sizeof(mlx5::cqe64)] = {};
  const auto put = [&](std::size_t at, const auto& value) {
    std::memcpy(bytes + at, &value, sizeof(value));
  };
  namespace field = mlx5::cqe_offset;
  if (error) {
    put(field::syndrome, static_cast<std::uint8_t>(v.why));
    put(field::vendor_syndrome, v.vendor);
  } else {
    put(field::imm, v.imm);
    put(field::byte_cnt, swapped(v.bytes));
  }
  put(field::sop_drop_qpn, swapped(static_cast<std::uint32_t>(v.of) << 24U | qpn));
  put(field::wqe_counter, swapped(static_cast<std::uint16_t>(v.index)));
  const bool owner = !queue_.collapsed && (written_ & queue_.depth) != 0;
  put(field::op_own,
      static_cast<std::uint8_t>(static_cast<unsigned>(v.what) << 4U | (owner ? 1U : 0U)));
  mlx5::cqe64 cqe{};
  std::memcpy(&cqe, bytes, sizeof(cqe));
  mlx5::cqe64& place = queue_.entries[queue_.collapsed ? 0 : written_ & (queue_.depth - 1)];
  constexpr std::size_t last = std::size(cqe.words) - 1;
  for (std::size_t i = 0; i < last; ++i) {
    shared(place.words[i]).store(cqe.words[i], std::memory_order_relaxed);
  }
  // Shows that it is there. pairs with mlx5_provider::look()
  shared(place.words[last]).store(cqe.words[last], std::memory_order_release);
  ++written_;
}

}  // namespace crosswarp::verbs
