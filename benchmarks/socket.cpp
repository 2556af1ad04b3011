// crosswarp bench socket: kernels that serve Linux's sockets, beside a server written for epoll.
#include "crosswarp/socket.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "bench.hpp"
#include "examples/servers/echo.hpp"
#include "examples/socket_pair.hpp"
#include "socket_host.hpp"

namespace crosswarp::bench {
namespace {

namespace dev = crosswarp::device;
namespace words = crosswarp::device::socket;

/// Takes `count` connections, which stay.
struct accept_all {
  CW_FN void operator()(const dev::kernel_context& ctx, const words::service& net,
                        words::handle listener, int count, int* accepted) const {
    const auto g = ctx.thread();
    for (*accepted = 0; *accepted < count; ++*accepted) {
      if (!net.accept(g, listener)) return;
    }
  }
};

/// What host_streams does, in a kernel. All bytes are copied: from rings into the device's memory,
/// or from there.
struct one_way_streams {
  static constexpr std::uint64_t held_bytes = 64 * 1024;

  CW_FN void operator()(const dev::kernel_context& ctx, const words::service& net,
                        words::handle listener, std::byte* held) const {
    const auto g = ctx.block();
    for (;;) {
      const words::handle s = net.accept(g, listener);
      if (s.error() == -ESHUTDOWN) return;
      if (!s) continue;
      while (serve(g, net, s, held)) {
      }
      net.close(g, s);
    }
  }

 private:
  template <class G>
  static CW_FN bool serve(const G& g, const words::service& net, words::handle s, std::byte* held) {
    std::uint64_t asked = 0;
    if (net.recv_all(g, s, held, sizeof(asked)) != sizeof(asked)) return false;
    memcpy(&asked, held, sizeof(asked));
    g.sync();  // all have read it
    const bool sends = (asked & wants_bytes) != 0;
    for (std::uint64_t left = asked & ~wants_bytes; left > 0;) {
      const std::uint64_t n = sends ? give(g, net, s, held, left) : take(g, net, s, held);
      if (n == 0) return false;
      left -= n;
    }
    return sends || net.send(g, s, held, 1) == 1;
  }
  template <class G>
  static CW_FN std::uint64_t take(const G& g, const words::service& net, words::handle s,
                                  std::byte* held) {
    const auto came = net.recv_view(g, s);
    if (came.result <= 0) return 0;
    const std::uint64_t n = came.first_bytes < held_bytes ? came.first_bytes : held_bytes;
    dev::copy(g, held, came.first, n);
    return net.consume(g, s, n) < 0 ? 0 : n;
  }
  template <class G>
  static CW_FN std::uint64_t give(const G& g, const words::service& net, words::handle s,
                                  const std::byte* held, std::uint64_t left) {
    const auto room = net.send_reserve(g, s);
    if (room.result <= 0) return 0;
    std::uint64_t n = room.first_bytes < held_bytes ? room.first_bytes : held_bytes;
    n = n < left ? n : left;
    dev::copy(g, room.first, held, n);
    return net.commit(g, s, n) < 0 ? 0 : n;
  }
};

/// An echo server in a kernel, or only its listener.
class kernel_echo {
 public:
  kernel_echo(device_ref d, const socket::service_options& o)
      : net_(d, o), on_(d), items_(d, static_cast<std::size_t>(blocks) * servers::echo::places) {
    const words::address where = words::address::loopback(0);
    const buffer<words::address> asked(d, std::span(&where, 1));
    const buffer<words::address> name(d, 1);
    const buffer<words::handle> listener(d, 1);
    launch(on_, {}, servers::open_listener{}, net_.device(), asked.data(), listener.data(),
           name.data());
    on_.sync();
    listener_ = listener.read()[0];
    port_ = name.read()[0].port;
    if (!listener_) throw error::from_errno(-listener_.error(), "listen", "bench socket");
  }
  ~kernel_echo() {
    net_.stop();
    on_.sync();
  }
  kernel_echo(const kernel_echo&) = delete;
  kernel_echo& operator=(const kernel_echo&) = delete;

  void serve() {
    const bool gpu = items_.device().kind() == device_kind::cuda;
    launch(on_, {.blocks = blocks, .threads = gpu ? 128 : 1, .resident = true}, servers::echo{},
           net_.device(), listener_, items_.data());
  }
  /// The other server, in this one's place.
  void serve_one_way() {
    const bool gpu = items_.device().kind() == device_kind::cuda;
    held_.emplace(items_.device(), one_way_streams::held_bytes);
    launch(on_, {.threads = gpu ? 256 : 1, .resident = true}, one_way_streams{}, net_.device(),
           listener_, held_->data());
  }
  /// Has `count` idle connections accepted, and no kernel that looks after them.
  std::unique_ptr<idle_connections> hold(int count) {
    const buffer<int> accepted(items_.device(), 1);
    launch(on_, {}, accept_all{}, net_.device(), listener_, count, accepted.data());
    auto held = std::make_unique<idle_connections>(port_, count);
    on_.sync();
    if (accepted.read()[0] != count) throw error(errc::system, "bench socket", "accept failed");
    return held;
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::string engine() const { return net_.stats().engine; }

 private:
  static constexpr int blocks = 1;
  socket::service net_;
  stream on_;
  buffer<words::poll_item> items_;
  std::optional<buffer<std::byte>> held_;
  words::handle listener_;
  std::uint16_t port_ = 0;
};

double cpu_seconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(r.ru_utime) + of(r.ru_stime);
}

class socket_bench {
 public:
  explicit socket_bench(const setup& s) : setup_(s), times_(s.quick ? 3 : 7) {}

  [[nodiscard]] std::vector<row> rows() {
    std::vector<row> all = beside_epoll();
    all.push_back(between_ranks());
    for (const row& r : idle()) all.push_back(r);
    for (const row& r : resp()) all.push_back(r);
    return all;
  }

 private:
  [[nodiscard]] row base(const std::string& what, const std::string& unit) const {
    row r;
    r.bench = "socket";
    r.what = what;
    r.device = setup_.device.name();
    r.path = engine_;
    r.unit = unit;
    return r;
  }

  /// `measure(port)` of both servers, in turn.
  template <class F>
  row beside(const std::string& what, const std::string& unit, F&& measure) {
    samples ours;
    samples theirs;
    for (int i = 0; i < times_; ++i) {
      ours.add(measure(kernel_->port()));
      theirs.add(measure(host_->port()));
    }
    row r = base(what + " (limit: a server for epoll)", unit);
    ours.fill(r);
    r.limit = theirs.median();
    return r;
  }

  std::vector<row> beside_epoll() {
    kernel_ = std::make_unique<kernel_echo>(setup_.device, socket::service_options{});
    host_ = std::make_unique<epoll_echo>();
    engine_ = kernel_->engine();
    kernel_->serve();
    const int n = setup_.quick ? 1 : 5;
    const std::size_t bytes = static_cast<std::size_t>(n) << 22U;
    std::vector<row> all;
    const auto trips = [&](std::uint16_t p) { return round_trip(p, 1000 * n); };
    const auto one_byte = [&](const std::string& where) {
      all.push_back(beside("1 byte there and back, " + where, "us", trips));
      all.back().bytes = 1;
    };
    {
      const placement on(placement::cores::one);
      one_byte("client and server on one core");
    }
    if (placement::has_two()) {
      const placement on(placement::cores::two);
      one_byte("client and server on a core each");
    }
    one_byte("on cores that Linux chooses");
    all.push_back(beside("one stream there and back", "GB/s",
                         [&](std::uint16_t p) { return stream_rate(p, 1, 8 * bytes); }));
    all.push_back(beside("32 streams there and back", "GB/s",
                         [&](std::uint16_t p) { return stream_rate(p, 32, bytes / 4); }));
    all.push_back(beside("connect, 1 byte there and back, close", "k/s",
                         [&](std::uint16_t p) { return 1e-3 * connection_rate(p, 300 * n); }));
    kernel_.reset();
    host_.reset();
    for (const bool to_server : {true, false}) all.push_back(stream_one_way(to_server, 16 * bytes));
    return all;
  }

  row stream_one_way(bool to_server, std::size_t bytes) {
    kernel_echo kernel(setup_.device, {});
    const host_streams host;
    kernel.serve_one_way();
    samples ours;
    samples theirs;
    for (int i = 0; i < times_; ++i) {
      ours.add(one_way(kernel.port(), bytes, to_server));
      theirs.add(one_way(host.port(), bytes, to_server));
    }
    row r = base(std::string("one stream ") + (to_server ? "into" : "out of") +
                     " a kernel (limit: a thread of the host)",
                 "GB/s");
    ours.fill(r);
    r.limit = theirs.median();
    return r;
  }

  /// Two ranks of one world, around TCP and by it.
  row between_ranks() {
    constexpr std::size_t bytes = 64;
    const int rounds = setup_.quick ? 200 : 2000;
    samples around;
    samples by_tcp;
    world_options o;
    o.device = setup_.device;
    run_local(2, o, [&](world& w) {
      const auto measure = [&](socket_pair::talk& t, samples& s) {
        const auto begin = std::chrono::steady_clock::now();
        t.exchange_bytes(rounds, bytes);
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        if (w.rank() == 0) s.add(took.count() / rounds);
      };
      socket_pair::talk with(w, {});
      socket_pair::talk without(w, {.lanes = 0});
      with.exchange_bytes(10, bytes);
      if (!with.goes_around()) throw error(errc::system, "bench socket", "TCP was not left");
      for (int i = 0; i < times_; ++i) {
        measure(with, around);
        measure(without, by_tcp);
      }
    });
    row r = base("two ranks of a world, around TCP, there and back (limit: by TCP)", "us");
    r.ranks = 2;
    r.bytes = bytes;
    around.fill(r);
    r.limit = by_tcp.median();
    return r;
  }

  /// What many connections cost that say nothing.
  std::vector<row> idle() {
    const int count = possible_connections(setup_.quick ? 1000 : 10'000);
    constexpr std::size_t ring = 4096;
    // One after the other: a second server that waits takes time from the first.
    const double without = trips(*std::make_unique<kernel_echo>(
                                     setup_.device, socket::service_options{.ring_bytes = ring}))
                               .median();
    kernel_echo many(setup_.device,
                     {.sockets = count + 64,
                      .ring_bytes = ring,
                      .ring_budget = 4 * ring * static_cast<std::size_t>(count + 64)});
    const auto held = many.hold(count);
    const std::string name = std::to_string(count) + " idle connections";
    row share = base("CPU of the host's thread, " + name, "%");
    samples used;
    for (int i = 0; i < times_; ++i) {
      const double before = cpu_seconds();
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(setup_.quick ? 100 : 500));
      const std::chrono::duration<double> t = std::chrono::steady_clock::now() - begin;
      used.add(100 * (cpu_seconds() - before) / t.count());
    }
    used.fill(share);
    row trip = base("1 byte there and back, " + name + " (limit: without them)", "us");
    trip.bytes = 1;
    trips(many).fill(trip);
    trip.limit = without;
    return {share, trip};
  }

  [[nodiscard]] samples trips(kernel_echo& server) const {
    server.serve();
    samples took;
    for (int i = 0; i < times_; ++i) took.add(round_trip(server.port(), 2000));
    return took;
  }

  /// The example server that speaks RESP, beside redis-server; none where one of the programs is
  /// missing.
  std::vector<row> resp() {
    const auto self = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const auto server = self.parent_path() / "examples" / "resp_server";
    if (setup_.quick || !std::filesystem::exists(server) ||
        std::system("redis-server --version > /dev/null 2>&1") != 0 ||
        std::system("redis-benchmark --version > /dev/null 2>&1") != 0) {
      return {};
    }
    const std::uint16_t port = free_port();
    const std::uint16_t redis_port = free_port();
    const program ours(server.string(),
                       "--device " + setup_.device.name() + " --port " + std::to_string(port),
                       port);
    const program redis("redis-server",
                        "--save --appendonly no --port " + std::to_string(redis_port), redis_port);
    std::map<std::string, samples> mine;
    std::map<std::string, samples> theirs;
    for (int i = 0; i < times_; ++i) {
      for (const auto& [name, rate] : redis_rates(port)) mine[name].add(rate);
      for (const auto& [name, rate] : redis_rates(redis_port)) theirs[name].add(rate);
    }
    std::vector<row> all;
    for (const auto& [name, rates] : mine) {
      row r = base("RESP " + name + ", 50 clients, 16 in flight", "k/s");
      rates.fill(r);
      r.peer = "redis-server";
      r.peer_median = theirs[name].median();
      all.push_back(r);
    }
    return all;
  }

  /// In thousands per second, by command.
  static std::map<std::string, double> redis_rates(std::uint16_t port) {
    const std::string command =
        "redis-benchmark -p " + std::to_string(port) + " -t set,get -c 50 -P 16 -n 300000 --csv";
    const std::unique_ptr<FILE, int (*)(FILE*)> out(popen(command.c_str(), "r"), pclose);
    if (!out) throw error::from_errno(errno, "popen", command);
    std::map<std::string, double> rates;
    std::array<char, 256> line{};
    while (std::fgets(line.data(), line.size(), out.get()) != nullptr) {
      char name[32] = {};
      double rate = 0;
      if (std::sscanf(line.data(), "\"%31[A-Z]\",\"%lf\"", name, &rate) == 2) {
        rates[name] = 1e-3 * rate;
      }
    }
    if (rates.empty()) throw error(errc::system, "redis-benchmark", "says nothing");
    return rates;
  }

  setup setup_;
  int times_;
  std::string engine_;
  std::unique_ptr<kernel_echo> kernel_;
  std::unique_ptr<epoll_echo> host_;
};

}  // namespace

std::string echoed_by_kernel(device_ref d, const std::string& text) {
  kernel_echo server(d, {});
  server.serve();
  return exchange(server.port(), text);
}

std::vector<row> bench_socket(const setup& s) {
  return socket_bench(s).rows();
}

}  // namespace crosswarp::bench
