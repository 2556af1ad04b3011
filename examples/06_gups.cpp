// Random access: atomic updates to random words of a table that is spread over all PEs.
//
//   ./06_gups [updates of each PE]                four PEs as threads
//   crosswarp run -n 4 ./06_gups                  processes
//   CROSSWARP_PATH=proxy ./06_gups                every update a command to the proxy
//
// Verified twice: the table's xor is that of all updates, and the same updates once more leave the
// table as it was.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using word = std::uint64_t;

constexpr std::size_t words_per_pe = 1U << 14U;
constexpr cw::launch_shape shape{.blocks = 2, .threads = 32};

/// Random bits from a number (splitmix64).
CW_FN word mixed(word x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}
/// Update `i` of a PE: what is xored. Which word it goes to is found from the same bits.
CW_FN word update_of(int pe, std::size_t i) {
  return mixed(static_cast<word>(pe) << 40U | i);
}
/// Word `i` of a PE's part of the table before the first update.
CW_FN word initial(int pe, std::size_t i) {
  return static_cast<word>(pe) * words_per_pe + i;
}

struct fill {
  CW_FN void operator()(const dev::kernel_context& k, int pe, word* table) const {
    const auto step = static_cast<std::size_t>(k.grid().size());
    for (auto i = static_cast<std::size_t>(k.grid().rank()); i < words_per_pe; i += step) {
      table[i] = initial(pe, i);
    }
  }
};

/// Each thread makes its share of this PE's updates; none of them waits.
struct update {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, word* table,
                        std::size_t updates, status* out) const {
    const auto sh = all.on_block(k);
    const auto me = k.thread();
    const word words = words_per_pe * static_cast<word>(sh.n_pes());
    const auto step = static_cast<std::size_t>(k.grid().size());
    status s = status::ok;
    for (auto i = static_cast<std::size_t>(k.grid().rank()); i < updates && s == status::ok;
         i += step) {
      const word bits = update_of(sh.my_pe(), i);
      const word where = bits % words;
      s = sh.atomic(me, dev::amo::bit_xor, table + where % words_per_pe, bits,
                    static_cast<int>(where / words_per_pe));
    }
    s = dev::agree(k.block(), s);
    if (s == status::ok) s = sh.quiet(k.block());  // of this block; each has its own order
    if (k.thread_index() == 0) out[k.block_index()] = s;
  }
};

/// The xor over all PEs of what the table is and of what it should be; sums[0] and sums[1].
struct fold {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, const word* table,
                        std::size_t updates, word* sums, status* out) const {
    const auto sh = all.on_block(k);
    const auto g = k.block();
    const auto first = static_cast<std::size_t>(g.rank());
    const auto step = static_cast<std::size_t>(g.size());
    word is = 0;
    word should_be = 0;
    for (std::size_t i = first; i < words_per_pe; i += step) {
      is ^= table[i];
      should_be ^= initial(sh.my_pe(), i);
    }
    for (std::size_t i = first; i < updates; i += step) should_be ^= update_of(sh.my_pe(), i);
    if (g.rank() == 0) sums[0] = sums[1] = 0;
    g.sync();
    dev::system_atomic<word>(sums[0]).fetch_xor(is, dev::order::relaxed);
    dev::system_atomic<word>(sums[1]).fetch_xor(should_be, dev::order::relaxed);
    g.sync();
    const status s = sh.reduce(g, dev::shmem_op::bit_xor{}, sums, sums, 2);
    if (g.rank() == 0) *out = s == status::ok && sums[0] != sums[1] ? status::invalid : s;
  }
};

/// Whether every word of this PE is as it was.
struct compare {
  CW_FN void operator()(const dev::kernel_context& k, int pe, const word* table,
                        status* out) const {
    const auto g = k.block();
    bool other = false;
    for (auto i = static_cast<std::size_t>(g.rank()); i < words_per_pe;
         i += static_cast<std::size_t>(g.size())) {
      other = other || table[i] != initial(pe, i);
    }
    other = g.any(other);
    if (g.rank() == 0) *out = other ? status::invalid : status::ok;
  }
};

/// Waits for the kernel of every PE; throws when one of this PE's blocks was not well.
void finish(cw::world& w, const cw::buffer<status>& out, const char* what) {
  w.stream().sync();
  for (const status s : out.read()) {
    if (s == status::ok) continue;
    throw cw::error(cw::errc::device_fault, what,
                    s == status::invalid ? "the table is wrong" : cw::to_string(s), w.rank());
  }
  w.barrier();
}

void rank_main(cw::world& w, std::size_t updates) {
  cw::shmem sh(w);
  word* const table = sh.allocate<word>(words_per_pe);
  word* const sums = sh.allocate<word>(2);
  cw::buffer<status> by_block(w.options().device, shape.blocks);
  cw::buffer<status> out(w.options().device, 1);

  cw::launch(w, shape, fill{}, w.rank(), table);
  finish(w, out, "fill");
  const auto began = std::chrono::steady_clock::now();
  cw::launch(w, shape, update{}, sh.device(), table, updates, by_block.data());
  finish(w, by_block, "update");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;

  cw::launch(w, {.threads = 64}, fold{}, sh.device(), table, updates, sums, out.data());
  finish(w, out, "the updates' xor");
  cw::launch(w, shape, update{}, sh.device(), table, updates, by_block.data());
  finish(w, by_block, "update again");
  cw::launch(w, {.threads = 64}, compare{}, w.rank(), table, out.data());
  finish(w, out, "the table after all");

  if (w.rank() == 0) {
    const auto all = static_cast<double>(updates) * w.size();
    std::printf("%.0f updates of %zu words on %d PEs: %.3g million a second, right\n", all,
                words_per_pe * static_cast<std::size_t>(w.size()), w.size(),
                all / took.count() / 1e6);
  }
}

int main(int argc, char** argv) {
  try {
    const std::size_t updates = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1U << 14U;
    cw::run(4, [&](cw::world& w) { rank_main(w, updates); });
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
