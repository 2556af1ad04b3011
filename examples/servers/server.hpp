// What the servers of this folder share: arguments, a listener, a kernel that runs until it is told
// to stop.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

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
};

/// What a GPU is asked for where the arguments do not say.
struct gpu_shape {
  int blocks = 2;
  int threads = 128;
};

/// `--device cpu|cuda --host ADDRESS --port N --blocks N --threads N --host-threads N`.
/// Throws error(invalid_argument) for anything else.
inline settings parse(int argc, char** argv, const gpu_shape& on_gpu = {}) {
  settings s;
  s.blocks = s.threads = 0;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--device") {
      s.device = cw::device_ref::parse(value);
    } else if (name == "--host") {
      s.host = value;
    } else if (name == "--port") {
      s.port = std::stoi(value);
    } else if (name == "--blocks") {
      s.blocks = std::stoi(value);
    } else if (name == "--threads") {
      s.threads = std::stoi(value);
    } else if (name == "--host-threads") {
      s.host_threads = std::stoi(value);
    } else {
      throw cw::error(cw::errc::invalid_argument, argv[0],
                      "'" + name +
                          "' is none of --device, --host, --port, --blocks, --threads, "
                          "--host-threads");
    }
  }
  const bool gpu = s.device.kind() == cw::device_kind::cuda;
  if (s.blocks == 0) s.blocks = gpu ? on_gpu.blocks : settings{}.blocks;
  if (s.threads == 0) s.threads = gpu ? on_gpu.threads : settings{}.threads;
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
