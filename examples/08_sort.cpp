// Integer sort over all PEs, in buckets: each key goes to the PE whose range it is in, and each PE
// sorts what came (as the benchmark ISx does).
//
//   ./08_sort                                     four PEs as threads
//   crosswarp run -n 4 --nodes 2 ./08_sort        processes, as if on two machines
#include <chrono>
#include <cstdio>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using key = std::uint32_t;
using word = std::uint64_t;

constexpr std::size_t keys_per_pe = 4096;
// Keys are random, so no PE gets twice its share; a power of two for the local sort.
constexpr std::size_t inbox_keys = 2 * keys_per_pe;
constexpr key largest = ~key{0};

/// Where keys are, on each PE. All but `mine` and `packed` is symmetric.
struct lists {
  key* mine;       ///< keys_per_pe
  key* packed;     ///< the same by destination
  key* inbox;      ///< inbox_keys
  word* reserved;  ///< keys of the inbox that are somebody's
  word* counts;    ///< by destination
  word* incoming;  ///< by source
  word* totals;    ///< see check()
};

CW_FN int owner_of(key k, int pes) {
  return static_cast<int>(static_cast<word>(k) * static_cast<word>(pes) >> 32U);
}
/// Key `i` of a PE (a step of splitmix64).
CW_FN key random_key(int pe, std::size_t i) {
  word x = (static_cast<word>(pe) * keys_per_pe + i + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  return static_cast<key>(x >> 32U);
}
CW_FN word add(word& sum, word value) {
  return dev::system_atomic<word>(sum).fetch_add(value, dev::order::relaxed);
}

struct bucket_sort {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, lists l, status* out) const {
    const auto g = k.block();
    const auto sh = all.on_block(k);
    start(g, sh, l);
    status s = sh.barrier(g);  // every inbox is empty before the first key comes
    if (s == status::ok) s = exchange(g, sh, l);
    if (s == status::ok) {
      sort(g, l.inbox);
      s = check(g, sh, l);
    }
    if (g.rank() == 0) *out = s;
  }

 private:
  using group = dev::block_group;

  CW_FN static void start(const group& g, const dev::shmem& sh, const lists& l) {
    const auto step = static_cast<std::size_t>(g.size());
    for (auto i = static_cast<std::size_t>(g.rank()); i < inbox_keys; i += step)
      l.inbox[i] = largest;
    for (int pe = g.rank(); pe < sh.n_pes(); pe += g.size()) l.counts[pe] = 0;
    for (int i = g.rank(); i < 4; i += g.size()) l.totals[i] = 0;
    if (g.rank() == 0) *l.reserved = 0;
    g.sync();
    for (auto i = static_cast<std::size_t>(g.rank()); i < keys_per_pe; i += step) {
      l.mine[i] = random_key(sh.my_pe(), i);
      add(l.counts[owner_of(l.mine[i], sh.n_pes())], 1);
    }
  }

  /// Tells everybody how many keys come, and sends them.
  CW_FN static status exchange(const group& g, const dev::shmem& sh, const lists& l) {
    status s = sh.alltoall(g, l.incoming, l.counts, 1);
    if (s != status::ok) return s;
    pack(g, sh, l);
    // Each PE begins with another, so that not all go to one at once.
    for (int i = 0; i < sh.n_pes(); ++i) {
      const int pe = (sh.my_pe() + i) % sh.n_pes();
      const word begin = l.counts[pe];
      const word end = pe + 1 < sh.n_pes() ? l.counts[pe + 1] : keys_per_pe;
      word at = 0;
      s = sh.atomic_fetch(g, dev::amo::add, l.reserved, end - begin, word{0}, pe, at);
      if (s == status::ok && at + end - begin > inbox_keys) s = status::invalid;
      if (s == status::ok) s = sh.put_nbi(g, l.inbox + at, l.packed + begin, end - begin, pe);
      if (s != status::ok) return s;
    }
    return sh.barrier(g);
  }

  /// Keys by destination; counts become where each destination's begin.
  CW_FN static void pack(const group& g, const dev::shmem& sh, const lists& l) {
    word* const next = l.counts + sh.n_pes();  // of each destination, where its next key goes
    g.sync();
    if (g.rank() == 0) {
      word begin = 0;
      for (int pe = 0; pe < sh.n_pes(); ++pe) {
        const word count = l.counts[pe];
        next[pe] = l.counts[pe] = begin;
        begin += count;
      }
    }
    g.sync();
    for (auto i = static_cast<std::size_t>(g.rank()); i < keys_per_pe;
         i += static_cast<std::size_t>(g.size())) {
      l.packed[add(next[owner_of(l.mine[i], sh.n_pes())], 1)] = l.mine[i];
    }
  }

  /// Bitonic; places without a key hold the largest one, which ends up there again.
  CW_FN static void sort(const group& g, key* keys) {
    for (std::size_t size = 2; size <= inbox_keys; size *= 2) {
      for (std::size_t stride = size / 2; stride > 0; stride /= 2) {
        for (auto i = static_cast<std::size_t>(g.rank()); i < inbox_keys;
             i += static_cast<std::size_t>(g.size())) {
          const std::size_t other = i ^ stride;
          const bool up = (i & size) == 0;
          if (other < i || (keys[i] > keys[other]) != up) continue;
          const key swapped = keys[i];
          keys[i] = keys[other];
          keys[other] = swapped;
        }
        g.sync();
      }
    }
  }

  /// In order here, all in this PE's range, as many as were announced; and over all PEs as many as
  /// there were, with the same sum. invalid when not.
  CW_FN static status check(const group& g, const dev::shmem& sh, const lists& l) {
    word announced = 0;
    for (int pe = 0; pe < sh.n_pes(); ++pe) announced += l.incoming[pe];
    const word count = *l.reserved;
    bool wrong = announced != count;
    const auto step = static_cast<std::size_t>(g.size());
    for (auto i = static_cast<std::size_t>(g.rank()); i < count; i += step) {
      wrong = wrong || owner_of(l.inbox[i], sh.n_pes()) != sh.my_pe();
      wrong = wrong || (i > 0 && l.inbox[i] < l.inbox[i - 1]);
      add(l.totals[0], 1);
      add(l.totals[1], l.inbox[i]);
    }
    for (auto i = static_cast<std::size_t>(g.rank()); i < keys_per_pe; i += step) {
      add(l.totals[2], 1);
      add(l.totals[3], random_key(sh.my_pe(), i));
    }
    const status s = sh.reduce(g, dev::shmem_op::sum{}, l.totals, l.totals, 4);
    wrong = wrong || l.totals[0] != l.totals[2] || l.totals[1] != l.totals[3];
    return s == status::ok && g.any(wrong) ? status::invalid : s;
  }
};

void rank_main(cw::world& w) {
  const cw::device_ref device = w.options().device;
  const auto pes = static_cast<std::size_t>(w.size());
  cw::shmem sh(w);
  cw::buffer<key> mine(device, keys_per_pe);
  cw::buffer<key> packed(device, keys_per_pe);
  cw::buffer<status> out(device, 1);
  const lists l{.mine = mine.data(),
                .packed = packed.data(),
                .inbox = sh.allocate<key>(inbox_keys),
                .reserved = sh.allocate<word>(1),
                .counts = sh.allocate<word>(2 * pes),
                .incoming = sh.allocate<word>(pes),
                .totals = sh.allocate<word>(4)};
  const auto began = std::chrono::steady_clock::now();
  cw::launch(w, {.threads = 64}, bucket_sort{}, sh.device(), l, out.data());
  w.stream().sync();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  if (const status s = out.read()[0]; s != status::ok) {
    throw cw::error(cw::errc::device_fault, "sort",
                    s == status::invalid ? "not sorted, or keys are lost" : cw::to_string(s),
                    w.rank());
  }
  w.barrier();
  if (w.rank() == 0) {
    std::printf("%zu keys on %d PEs sorted and checked in %.1f ms\n", keys_per_pe * pes, w.size(),
                took.count());
  }
}

int main() {
  try {
    cw::run(4, rank_main);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
