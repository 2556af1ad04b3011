#include "self_test.hpp"

#include "crosswarp/launch.hpp"

namespace crosswarp::memory {
namespace {

/// What `from` writes to `to`: different for every pair.
CW_FN inline std::uint64_t pattern(int from, int to) {
  return (static_cast<std::uint64_t>(from) + 1) * 0x9e3779b97f4a7c15ULL ^
         (static_cast<std::uint64_t>(to) + 1) * 0xc2b2ae3d27d4eb4fULL;
}

struct write_patterns {
  CW_FN void operator()(const device::kernel_context& /*ctx*/,
                        device::symmetric<device::signal_line> lines, int rank, int size) const {
    for (int to = 0; to < size; ++to) {
      if (device::signal_line* const at = lines.find(to)) {
        device::signal(at[rank]).set(pattern(rank, to));
      }
    }
  }
};

/// `wrong`: the first rank whose pattern is not there, or -1.
struct check_patterns {
  CW_FN void operator()(const device::kernel_context& /*ctx*/,
                        device::symmetric<device::signal_line> lines, int rank, int size,
                        int* wrong) const {
    *wrong = -1;
    for (int peer = size - 1; peer >= 0; --peer) {
      device::signal_line* const at = lines.find(peer);
      if (at == nullptr) continue;
      const bool arrived = device::signal(lines.local()[peer]).read() == pattern(peer, rank);
      const bool readable = device::signal(at[rank]).read() == pattern(rank, peer);
      if (!arrived || !readable) *wrong = peer;
    }
  }
};

}  // namespace

void self_test(world& w, const device::symmetric<device::signal_line>& lines) {
  launch(w.stream(), {}, write_patterns{}, lines, w.rank(), w.size());
  w.stream().sync();
  w.barrier();
  buffer<int> wrong(w.options().device, 1);
  launch(w.stream(), {}, check_patterns{}, lines, w.rank(), w.size(), wrong.data());
  w.stream().sync();
  if (const int peer = wrong.read().front(); peer >= 0) {
    throw error(errc::device_fault, "self-test",
                "what was written through its mapping (" + w.path_to(peer) + ") did not arrive",
                peer);
  }
}

}  // namespace crosswarp::memory
