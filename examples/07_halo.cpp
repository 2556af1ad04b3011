// Halo exchange: the heat of a plate whose upper edge is kept hot, by Jacobi's iteration. Each PE
// has a tile of the plate; the PEs are a grid, with a team for each row and each column of it.
//
//   ./07_halo                                     four PEs as threads
//   ./07_halo plate.ppm                           and a picture
//   crosswarp run -n 4 --nodes 2 ./07_halo        processes, as if on two machines
//
// Verified against the same computation by one thread.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;

constexpr int iterations = 200;
// A tile, and what it is with one line of its neighbours' around it.
constexpr int tile = 24;
constexpr int pitch = tile + 2;
constexpr std::size_t tile_cells = std::size_t{pitch} * pitch;
constexpr float hot = 1.0F;

CW_FN constexpr int cell(int y, int x) {
  return y * pitch + x;
}

enum side { above, below, left, right, sides };

/// What of the plate a PE has, all of it symmetric.
struct part {
  float* now;
  float* next;
  std::uint64_t* signals;  ///< by side: the last iteration whose halo has come
};

/// A PE's neighbours: the views of the teams in which they are next to it, and their numbers there.
struct neighbours {
  dev::shmem column;
  dev::shmem row;

  CW_FN int pe(int s) const {
    const dev::shmem& team = s < left ? column : row;
    return s == above || s == left ? team.my_pe() - 1 : team.my_pe() + 1;
  }
  CW_FN bool has(int s) const { return (s < left ? column : row).team().has(pe(s)); }
};

/// One edge of `tile` goes into the halo of the neighbour on side `s`, whose other side it is.
template <class G>
CW_FN status send_edge(const G& g, const neighbours& by, int s, float* cells,
                       std::uint64_t* signals, std::uint64_t round) {
  if (!by.has(s)) return status::ok;
  const int pe = by.pe(s);
  if (s == above || s == below) {
    // A row lies in one piece: data and signal in one call.
    const int from = s == above ? cell(1, 1) : cell(tile, 1);
    const int to = s == above ? cell(tile + 1, 1) : cell(0, 1);
    return by.column.put_signal(g, cells + to, cells + from, tile, signals + (s ^ 1), round,
                                dev::signal_op::set, pe);
  }
  const int from = s == left ? cell(1, 1) : cell(1, tile);
  const int to = s == left ? cell(1, tile + 1) : cell(1, 0);
  status r = by.row.iput(g, cells + to, cells + from, {.dest = pitch, .source = pitch}, tile, pe);
  if (r == status::ok) r = by.row.fence(g);  // who sees the signal sees the column
  if (r == status::ok) r = by.row.signal_set(g, signals + (s ^ 1), round, pe);
  return r;
}

/// All iterations in one kernel. A PE can be one iteration ahead of its neighbours, not two: it
/// waits for their halos. So a halo never overwrites one that is still read, two copies being
/// there.
struct iterate {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, neighbours by, part p,
                        status* out) const {
    const auto g = k.block();
    all = all.on_block(k);
    by.column = by.column.on_block(k);
    by.row = by.row.on_block(k);
    start(g, by, p);
    status s = all.barrier(g);
    int nobody[sides];
    for (int i = 0; i < sides; ++i) nobody[i] = by.has(i) ? 0 : 1;
    for (std::uint64_t round = 1; round <= iterations && s == status::ok; ++round) {
      for (int i = g.rank(); i < tile * tile; i += g.size()) {
        const int c = cell(1 + i / tile, 1 + i % tile);
        p.next[c] = 0.25F * (p.now[c - pitch] + p.now[c + pitch] + p.now[c - 1] + p.now[c + 1]);
      }
      for (int i = 0; i < sides && s == status::ok; ++i) {
        s = send_edge(g, by, i, p.next, p.signals, round);
      }
      if (s == status::ok) {
        s = all.wait_until_all(g, dev::shmem::words<std::uint64_t>{.at = p.signals,
                                                                   .count = sides,
                                                                   .skip = nobody,
                                                                   .how = dev::compare::ge,
                                                                   .values = &round,
                                                                   .one = true});
      }
      float* const done = p.next;
      p.next = p.now;
      p.now = done;
    }
    if (s == status::ok) s = all.barrier(g);
    if (g.rank() == 0) *out = s;
  }

 private:
  /// Cold, but for the halo of the tiles at the upper edge.
  template <class G>
  CW_FN static void start(const G& g, const neighbours& by, const part& p) {
    for (int i = g.rank(); i < static_cast<int>(tile_cells); i += g.size()) {
      const bool edge = i < pitch && !by.has(above);
      p.now[i] = p.next[i] = edge ? hot : 0.0F;
    }
    for (int i = g.rank(); i < sides; i += g.size()) p.signals[i] = 0;
  }
};

/// PE 0 collects the plate: from each PE the rows of its tile.
struct collect {
  CW_FN void operator()(const dev::kernel_context& k, dev::shmem all, const float* cells,
                        float* plate, int columns, status* out) const {
    const auto g = k.block();
    const int width = columns * tile;
    status s = status::ok;
    for (int pe = 0; pe < all.n_pes() && all.my_pe() == 0 && s == status::ok; ++pe) {
      float* const to = plate + (pe / columns) * tile * width + (pe % columns) * tile;
      s = all.iget(g, to, cells + cell(1, 1), {.dest = width, .source = pitch, .block = tile}, tile,
                   pe);
    }
    if (s == status::ok) s = all.barrier(g);
    if (g.rank() == 0) *out = s;
  }
};

/// The same by one thread: `height` x `width` cells.
std::vector<float> serial(int height, int width) {
  const auto row = static_cast<std::size_t>(width) + 2;
  const auto at = [&](int y, int x) {
    return static_cast<std::size_t>(y) * row + static_cast<std::size_t>(x);
  };
  std::vector<float> now(at(height + 2, 0), 0.0F);
  std::fill_n(now.begin(), width + 2, hot);
  std::vector<float> next = now;
  for (int i = 0; i < iterations; ++i) {
    for (int y = 1; y <= height; ++y) {
      for (int x = 1; x <= width; ++x) {
        next[at(y, x)] =
            0.25F * (now[at(y - 1, x)] + now[at(y + 1, x)] + now[at(y, x - 1)] + now[at(y, x + 1)]);
      }
    }
    now.swap(next);
  }
  std::vector<float> inner;
  for (int y = 1; y <= height; ++y) {
    inner.insert(inner.end(), now.begin() + y * (width + 2) + 1,
                 now.begin() + (y + 1) * (width + 2) - 1);
  }
  return inner;
}

/// From black over red and yellow to white.
void write_picture(const char* file, const std::vector<float>& plate, int width) {
  std::ofstream f(file, std::ios::binary);
  f << "P6\n" << width << ' ' << plate.size() / static_cast<std::size_t>(width) << "\n255\n";
  for (const float heat : plate) {
    for (const float from : {0.0F, 1.0F, 2.0F}) {
      f.put(static_cast<char>(255.0F * std::clamp(3.0F * heat - from, 0.0F, 1.0F)));
    }
  }
  f.flush();
  if (!f) throw cw::error(cw::errc::system, file, "could not be written");
}

/// The width of the most square grid of n PEs.
int columns_of(int n) {
  int rows = 1;
  for (int i = 1; i * i <= n; ++i) {
    if (n % i == 0) rows = i;
  }
  return n / rows;
}

void finish(cw::world& w, const cw::buffer<status>& out, const char* what) {
  w.stream().sync();
  if (const status s = out.read()[0]; s != status::ok) {
    throw cw::error(cw::errc::device_fault, what, cw::to_string(s), w.rank());
  }
}

void rank_main(cw::world& w, const char* picture) {
  const int columns = columns_of(w.size());
  const int width = columns * tile;
  const int height = w.size() / columns * tile;
  cw::shmem sh(w);
  const auto grid = sh.split_2d(sh.all(), columns);
  const part p{sh.allocate<float>(tile_cells), sh.allocate<float>(tile_cells),
               sh.allocate<std::uint64_t>(sides)};
  cw::buffer<status> out(w.options().device, 1);
  cw::buffer<float> plate(w.options().device, static_cast<std::size_t>(width * height));

  cw::launch(w, {.threads = 64}, iterate{}, sh.device(),
             neighbours{grid.column.device(), grid.row.device()}, p, out.data());
  finish(w, out, "iterate");
  const float* const last = iterations % 2 == 0 ? p.now : p.next;
  cw::launch(w, {.threads = 64}, collect{}, sh.device(), last, plate.data(), columns, out.data());
  finish(w, out, "collect");
  if (w.rank() != 0) return;

  const auto got = plate.read();
  const auto want = serial(height, width);
  float off = 0;
  for (std::size_t i = 0; i < got.size(); ++i) off = std::max(off, std::abs(got[i] - want[i]));
  if (!(off < 1e-5F)) {
    throw cw::error(cw::errc::device_fault, "halo", "off by " + std::to_string(off));
  }
  if (picture != nullptr) write_picture(picture, got, width);
  std::printf("%d x %d cells on %d x %d PEs, %d iterations: right\n", height, width,
              w.size() / columns, columns, iterations);
}

int main(int argc, char** argv) {
  try {
    cw::run(4, [&](cw::world& w) { rank_main(w, argc > 1 ? argv[1] : nullptr); });
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
