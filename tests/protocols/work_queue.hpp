// A work queue with doorbell, and completions that carry an owner bit (rdma): the even rank posts
// entries to the odd rank's queue and rings its doorbell; the odd rank, which plays the NIC,
// executes them in order and writes completions whose owner bit flips with every lap.
#pragma once

#include "common.hpp"

namespace protocols {

struct work_queue_memory {
  static constexpr std::uint32_t depth = 4;  // a power of two
  struct entry {
    std::uint32_t word[16];
  };
  struct completion {
    std::uint32_t sum;
    std::uint32_t opcode_and_owner;  // atomic: bit 0 is the owner, as in a CQE
  };
  entry queue[depth];         // at the NIC
  dev::signal_line doorbell;  // at the NIC: entries posted
  completion done[depth];     // at the poster
  // Before the first lap no completion must look valid: the first lap's owner bit is 0.
  CW_FN void prepare() {
    for (completion& c : done) {
      dev::system_atomic<std::uint32_t>(c.opcode_and_owner).store(0xffffffffU, dev::order::relaxed);
    }
  }
};

template <class Who>
struct work_queue {
  static constexpr std::uint32_t depth = work_queue_memory::depth;
  static constexpr std::uint32_t opcode = 0x20;

  CW_FN static std::uint32_t word(std::uint32_t n, int i) {
    return n * 2654435761U + static_cast<std::uint32_t>(i);
  }
  CW_FN static std::uint32_t sum(std::uint32_t n) {
    std::uint32_t s = 0;
    for (int i = 0; i < 16; ++i) s += word(n, i);
    return s;
  }
  CW_FN static std::uint32_t owner_of(std::uint32_t n) { return n / depth & 1U; }

  template <class G>
  CW_FN static status reap(const G& g, work_queue_memory& mine, std::uint32_t n, int& wrong,
                           const dev::wait_limits& limits) {
    work_queue_memory::completion& c = mine.done[n % depth];
    const dev::system_atomic<std::uint32_t> flag(c.opcode_and_owner);
    const std::uint32_t valid = opcode << 4U | owner_of(n);
    const status s = dev::poll_until(
        g, [&] { return flag.load(dev::order::acquire) == valid; }, limits);  // pairs with serve()
    if (s == status::ok) wrong += c.sum != sum(n);
    return s;
  }

  template <class G>
  CW_FN static status post(const G& g, work_queue_memory& mine, work_queue_memory& nic, int entries,
                           int& wrong, const dev::wait_limits& limits) {
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(entries); ++n) {
      if (n >= depth) {
        if (const status s = reap(g, mine, n - depth, wrong, limits); s != status::ok) return s;
      }
      for (int i = g.rank(); i < 16; i += g.size()) nic.queue[n % depth].word[i] = word(n, i);
      dev::notify(g, dev::signal(nic.doorbell), n + 1);
    }
    for (std::uint32_t n =
             entries < static_cast<int>(depth) ? 0 : static_cast<std::uint32_t>(entries) - depth;
         n < static_cast<std::uint32_t>(entries); ++n) {
      if (const status s = reap(g, mine, n, wrong, limits); s != status::ok) return s;
    }
    return status::ok;
  }

  template <class G>
  CW_FN static status serve(const G& g, work_queue_memory& mine, work_queue_memory& poster,
                            int entries, const dev::wait_limits& limits) {
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(entries); ++n) {
      const status s = dev::wait(g, dev::signal(mine.doorbell), n + 1, limits);
      if (s != status::ok) return s;
      if (g.rank() == 0) {
        std::uint32_t total = 0;
        for (const std::uint32_t v : mine.queue[n % depth].word) total += v;
        work_queue_memory::completion& c = poster.done[n % depth];
        c.sum = total;
        dev::system_atomic<std::uint32_t>(c.opcode_and_owner)
            .store(opcode << 4U | owner_of(n), dev::order::release);  // pairs with reap()
      }
      g.sync();
    }
    return status::ok;
  }

  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<work_queue_memory> mem, int entries, outcome* out) const {
    const auto g = Who{}(ctx);
    const int partner = w.rank ^ 1;
    int wrong = 0;
    status s = status::ok;
    if (g.rank() == 0) mem.local()->prepare();
    s = w.barrier_all(g);
    if (s == status::ok && partner < w.size) {
      const auto limits = w.limits.for_peer(partner);
      s = w.rank % 2 == 0 ? post(g, *mem.local(), *mem.at(partner), entries, wrong, limits)
                          : serve(g, *mem.local(), *mem.at(partner), entries, limits);
    }
    report(g, out, s, wrong);
  }
};

}  // namespace protocols
