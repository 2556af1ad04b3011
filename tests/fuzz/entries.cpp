#include "fuzz/entries.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "crosswarp/rdma.hpp"

namespace fuzz {
namespace {

namespace dev = crosswarp::device;
namespace mlx5 = crosswarp::device::mlx5;
namespace rdma = crosswarp::rdma;
using provider = dev::rdma::mlx5_provider;

class reader {
 public:
  explicit reader(std::span<const std::byte> input) : left_(input) {}
  [[nodiscard]] bool empty() const { return left_.empty(); }
  template <class T>
  T take() {
    T value{};
    take_into(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void take_into(std::span<std::byte> to) {
    const std::size_t n = std::min(to.size(), left_.size());
    if (n > 0) std::memcpy(to.data(), left_.data(), n);
    left_ = left_.subspan(n);
  }

 private:
  std::span<const std::byte> left_;
};

/// A page with nothing around it. Its middle is registered, the rest keeps its pattern.
class page {
 public:
  static constexpr std::size_t bytes = 4096;
  static constexpr std::size_t first = 1024;
  static constexpr std::size_t count = 2048;

  page() {
    constexpr std::size_t around = std::size_t{1} << 20U;
    void* const all = mmap(nullptr, 2 * around + bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(all) + around;
    if (mprotect(base_, bytes, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  [[nodiscard]] std::byte* open() const { return base_ + first; }
  void fill() const {
    for (std::size_t i = 0; i < bytes; ++i) base_[i] = pattern(i);
  }
  [[nodiscard]] bool is_whole(bool inside) const {
    for (std::size_t i = 0; i < bytes; ++i) {
      if ((inside || i < first || i >= first + count) && base_[i] != pattern(i)) return false;
    }
    return true;
  }

 private:
  static std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 151 + 43); }
  std::byte* base_ = nullptr;
};

/// Two endpoints, memory of each kind, and a queue that is filled by hand.
class bench {
 public:
  bench() {
    options_.send_depth = 16;
    options_.receive_depth = 16;
    options_.retries = 0;
    options_.not_ready_retries = 0;
    for (const rdma::access a : {rdma::access::all, rdma::access::remote_read}) {
      regions_.push_back(d_.register_memory(pages_[regions_.size()].open(), page::count, a));
    }
  }

  std::string take(std::span<const std::byte> input) {
    for (const page& p : pages_) p.fill();
    reader in(input);
    const auto first = in.take<std::uint8_t>();
    rdma::endpoint_options receiving = options_;
    if ((first & 0x40U) != 0) receiving.sge = 3;
    const rdma::shared_receive_queue shared =
        d_.make_shared_receive_queue({.depth = 16, .sge = receiving.sge});
    if ((first & 0x80U) != 0) receiving.receives = &shared;
    rdma::endpoint a = d_.make_endpoint(options_);
    rdma::endpoint b = d_.make_endpoint(receiving);
    a.connect(b.address());
    b.connect(a.address());
    if (receiving.receives == nullptr) {
      fill_receives(b, first % 17U, in);
    } else {
      fill_shared(shared, first % 18U, in);
    }
    // What fails ends its queue pair: another one goes on, so that more than the first bad entry of
    // an input is tried.
    constexpr int pairs = 6;
    for (int i = 0; i < pairs && post_until_failure(a, in); ++i) {
      a.reset();
      b.reset();
      a.connect(b.address());
      b.connect(a.address());
      if (receiving.receives == nullptr) fill_receives(b, in.take<std::uint8_t>() % 17U, in);
    }
    if (!pages_[0].is_whole(false)) return "memory was changed that is not registered";
    if (!pages_[1].is_whole(true)) return "memory was changed that may be read only";
    return {};
  }

 private:
  /// Entries as the input has them; true when one has failed, and something is left of it.
  bool post_until_failure(const rdma::endpoint& a, reader& in) {
    const provider::queues q = a.device().made_of().queues;
    std::uint64_t index = 0;
    while (!in.empty() && index < 4096) {
      const auto how = in.take<std::uint8_t>();
      const std::uint64_t blocks = 1 + how % 4U;
      for (std::uint64_t i = 0; i < blocks; ++i) write_block(q, index + i, (how >> 2U) & 7U, in);
      index += blocks;
      // Now and then a doorbell that is not what the record says.
      const std::uint64_t odd = (how >> 5U) == 7 ? in.take<std::uint16_t>() : 0;
      provider::write_send_record(q, index);
      provider::ring(q, index + odd);
      // The first is answered before it looks at doorbells again, the second after.
      (void)a.state();
      if (a.state() == rdma::endpoint_state::failed) return !in.empty();
    }
    return false;
  }

  /// Bytes as they come, with a head and addresses that mean something in most of them.
  void write_block(const provider::queues& q, std::uint64_t index, unsigned how, reader& in) {
    std::byte raw[mlx5::block_bytes] = {};
    in.take_into(raw);
    if (how != 7) tame(raw, index, q.qpn, how);
    std::memcpy(q.send + (index % 16) * mlx5::block_bytes, raw, sizeof(raw));
  }

  void tame(std::byte* raw, std::uint64_t index, std::uint32_t qpn, unsigned how) {
    constexpr mlx5::opcode codes[] = {
        mlx5::opcode::rdma_write,       mlx5::opcode::rdma_read, mlx5::opcode::atomic_fa,
        mlx5::opcode::atomic_masked_cs, mlx5::opcode::send,      mlx5::opcode::rdma_write_imm,
        mlx5::opcode::atomic_masked_fa, mlx5::opcode::nop};
    const auto op = codes[static_cast<unsigned>(raw[0]) % std::size(codes)];
    const auto opmod = static_cast<std::uint8_t>(op == mlx5::opcode::atomic_masked_cs ||
                                                         op == mlx5::opcode::atomic_masked_fa
                                                     ? 8 + (static_cast<unsigned>(raw[1]) & 1U)
                                                     : 0);
    const std::uint32_t units = how == 6 ? static_cast<unsigned>(raw[2]) % 20 : how % 5 + 1;
    const auto head = mlx5::make_ctrl(static_cast<std::uint16_t>(index), op, opmod, qpn,
                                      static_cast<std::uint8_t>(raw[3]), units);
    std::memcpy(raw, &head, sizeof(head));
    for (std::size_t at = 16; at < mlx5::block_bytes; at += 16) {
      if ((static_cast<unsigned>(raw[at]) & 3U) == 0) continue;  // as it came
      const rdma::memory_region& r = regions_[static_cast<unsigned>(raw[at + 1]) & 1U];
      std::uint16_t offset = 0;
      std::memcpy(&offset, raw + at + 2, sizeof(offset));
      const std::uint64_t address = r.device().address + offset % (page::count + 64) - 16;
      if (at == 16 && op != mlx5::opcode::send) {
        const auto s = mlx5::make_raddr(address, r.device().rkey);
        std::memcpy(raw + at, &s, sizeof(s));
      } else {
        const auto s =
            mlx5::make_data(static_cast<unsigned>(raw[at + 4]) * 9, r.device().lkey, address);
        std::memcpy(raw + at, &s, sizeof(s));
      }
    }
  }

  void make_receive(mlx5::data_segment* at, std::uint32_t room, reader& in) {
    for (std::uint32_t i = 0; i < room; ++i) {
      const auto how = in.take<std::uint32_t>();
      const rdma::memory_region& r = regions_[how & 1U];
      at[i] = mlx5::make_data((how >> 1U) % 4096, r.device().lkey,
                              r.device().address + (how >> 16U) % page::count);
    }
  }
  void fill_receives(const rdma::endpoint& b, unsigned n, reader& in) {
    const provider::queues q = b.device().made_of().queues;
    for (unsigned i = 0; i < n; ++i) make_receive(q.receive_at(i), q.receive_pieces, in);
    provider::write_receive_record(q, n);
  }
  /// With links as they come, and a record that may say more than the queue holds.
  void fill_shared(const rdma::shared_receive_queue& to, unsigned n, reader& in) {
    const provider::shared_queue q = to.device().made_of().queue;
    for (unsigned i = 0; i < std::min(n, 16U); ++i) {
      make_receive(q.receive_at(i), q.pieces, in);
      if (i % 4 == 3) q.link_at(i).next = in.take<std::uint16_t>();
    }
    provider::write_shared_record(q, n);
  }

  rdma::context all_;
  rdma::device_context d_ = all_.devices().at(0).open();
  rdma::endpoint_options options_;
  page pages_[2];
  std::vector<rdma::memory_region> regions_;
};

}  // namespace

std::string post_entries(std::span<const std::byte> input) {
  static bench b;
  return b.take(input);
}

}  // namespace fuzz
