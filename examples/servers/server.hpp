// What the servers of this folder share: arguments, a listener, a kernel that runs until it is told
// to stop.
#pragma once

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/socket.hpp"

namespace servers {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace sock = crosswarp::device::socket;

struct settings {
  cw::device_ref device = cw::device_ref::cpu();
  std::string host = "127.0.0.1";
  int port = 7000;
  int blocks = 2;
  int threads = 1;
  int host_threads = 1;  ///< that serve the sockets
  int idle = 0;          ///< seconds that a connection may do nothing; 0: any number
};

/// Where the arguments do not say.
struct defaults {
  int blocks = 2;  ///< on a GPU
  int threads = 128;
  int idle = -1;         ///< of connections; -1: the program has no such limit
  const char* own = "";  ///< options that the program reads itself, for its usage
};

/// The number that stands after `name`.
inline int parse_number(const char* program, const std::string& name, std::string_view value,
                        int least, int most) {
  int n = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, wrong] = std::from_chars(value.data(), end, n);
  if (wrong == std::errc{} && stop == end && n >= least && n <= most) return n;
  throw cw::error(cw::errc::invalid_argument, program,
                  name + " wants a number from " + std::to_string(least) + " to " +
                      std::to_string(most) + ", not '" + std::string(value) + "'");
}

inline void print_usage(const char* program, const defaults& otherwise) {
  std::printf(
      "Usage: %s [--device cpu|cuda] [--host ADDRESS] [--port N] [--blocks N] [--threads N]\n"
      "       [--host-threads N]%s%s\n"
      "Without them: the CPU, 127.0.0.1, port 7000, one host thread.\n",
      program, otherwise.idle >= 0 ? " [--idle SECONDS]" : "", otherwise.own);
}

/// `--device cpu|cuda --host ADDRESS --port N --blocks N --threads N --host-threads N`, and
/// `--idle SECONDS` of those that have it. Throws error(invalid_argument) for anything else. With
/// `--help` the program ends here.
inline settings parse(int argc, char** argv, const defaults& otherwise = {}) {
  settings s;
  s.blocks = s.threads = 0;
  const bool has_idle = otherwise.idle >= 0;
  if (has_idle) s.idle = otherwise.idle;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      print_usage(argv[0], otherwise);
      std::exit(EXIT_SUCCESS);
    }
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [&](int least, int most) {
      return parse_number(argv[0], name, value, least, most);
    };
    if (name == "--device") {
      s.device = cw::device_ref::parse(value);
    } else if (name == "--host") {
      s.host = value;
    } else if (name == "--port") {
      s.port = number(0, 65535);
    } else if (name == "--blocks") {
      s.blocks = number(1, 65535);
    } else if (name == "--threads") {
      s.threads = number(1, 1024);
    } else if (name == "--host-threads") {
      s.host_threads = number(1, 64);
    } else if (name == "--idle" && has_idle) {
      s.idle = number(0, 1'000'000);
    } else {
      throw cw::error(cw::errc::invalid_argument, argv[0],
                      "'" + name +
                          "' is none of --device, --host, --port, --blocks, --threads, "
                          "--host-threads" +
                          (has_idle ? ", --idle" : ""));
    }
  }
  const bool gpu = s.device.kind() == cw::device_kind::cuda;
  if (s.blocks == 0) s.blocks = gpu ? otherwise.blocks : settings{}.blocks;
  if (s.threads == 0) s.threads = gpu ? otherwise.threads : settings{}.threads;
  return s;
}

/// Listens, and says where that is.
struct open_listener {
  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& net,
                        const sock::address* where, sock::handle* listener,
                        sock::address* name) const {
    const auto g = ctx.thread();
    *listener = net.listen(g, *where, 1024);
    if (*listener) net.own_name(g, *listener, name);
  }
};

/// Runs `serve(stream, shape, net, listener)`, which launches a kernel, until SIGINT or SIGTERM.
/// The kernel ends when accept() returns -ESHUTDOWN.
template <class Serve>
int run(const settings& s, cw::socket::service_options options, Serve&& serve) {
  // Before any thread is there: all of them leave the signals to this one.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  options.threads = s.host_threads;
  cw::socket::service net(s.device, options);
  cw::stream stream(s.device);
  const bool bracket = s.host.find(':') != std::string::npos;
  const sock::address where = cw::socket::parse_address((bracket ? "[" + s.host + "]" : s.host) +
                                                        ":" + std::to_string(s.port));
  cw::buffer<sock::address> addresses(s.device, std::span(&where, 1));
  cw::buffer<sock::address> name(s.device, 1);
  cw::buffer<sock::handle> listener(s.device, 1);
  cw::launch(stream, {}, open_listener{}, net.device(), addresses.data(), listener.data(),
             name.data());
  stream.sync();
  const sock::handle l = listener.read()[0];
  if (!l) {
    throw cw::error::from_errno(-l.error(), "listen", cw::socket::to_string(where));
  }
  std::printf("listening at %s\n", cw::socket::to_string(name.read()[0]).c_str());
  std::fflush(stdout);

  serve(stream, cw::launch_shape{.blocks = s.blocks, .threads = s.threads, .resident = true},
        net.device(), l);
  int which = 0;
  sigwait(&ends, &which);
  net.stop();
  stream.sync();
  const auto did = net.stats();
  std::printf("%llu connections, %llu bytes in, %llu bytes out\n",
              static_cast<unsigned long long>(did.accepted),
              static_cast<unsigned long long>(did.received_bytes),
              static_cast<unsigned long long>(did.sent_bytes));
  return 0;
}

/// The same with what is thrown told on stderr.
template <class Main>
int guarded(Main&& main) {
  try {
    return main();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

}  // namespace servers
