// GPUnet's echo client: every block connects, sends messages and checks what comes back.
//
//   echo_client --device cpu|cuda --host 127.0.0.1 --port 7000 [--blocks N] [--threads N]
#include "crosswarp/device/gpunet.hpp"
#include "server.hpp"

namespace {

using namespace servers;

constexpr int message_bytes = 4096;
constexpr int messages = 100;

CW_FN std::uint8_t byte_at(int block, int message, int i) {
  return static_cast<std::uint8_t>(block * 31 + message * 7 + i);
}

struct gpuclient {
  CW_FN void operator()(const dev::kernel_context& ctx, const sock::service& service,
                        const sockaddr_in* addr, int* outcome) const {
    const dev::gpunet net(ctx, service);
    const auto g = ctx.block();
    auto* const buf = reinterpret_cast<std::uint8_t*>(ctx.shared_memory());
    int ret = 0;
    bool wrong = false;

    const int sock = net.gconnect_in(addr);
    if (sock < 0) {
      if (g.rank() == 0) outcome[ctx.block_index()] = sock;
      return;
    }
    for (int m = 0; m < messages && ret >= 0 && !wrong; ++m) {
      for (int i = g.rank(); i < message_bytes; i += g.size()) {
        buf[i] = byte_at(ctx.block_index(), m, i);
      }
      for (int sent = 0; sent < message_bytes && ret >= 0; sent += ret) {
        ret = net.gsend(sock, buf + sent, message_bytes - sent);
        if (ret < 0) break;
      }
      g.sync();
      for (int recved = 0; recved < message_bytes && ret >= 0; recved += ret) {
        ret = net.grecv(sock, buf + recved, message_bytes - recved);
        if (ret == 0) ret = -ECONNABORTED;  // the server has ended too early
        if (ret < 0) break;
      }
      for (int i = g.rank(); i < message_bytes && ret >= 0; i += g.size()) {
        wrong = wrong || buf[i] != byte_at(ctx.block_index(), m, i);
      }
      wrong = g.any(wrong);
    }
    if (g.rank() == 0) {
      net.single_thread_gclose(sock);
      outcome[ctx.block_index()] = ret < 0 ? ret : wrong ? -EBADMSG : 0;
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return guarded([&] {
    const settings s = parse(argc, argv);
    const sock::address where = cw::socket::parse_address(s.host + ":" + std::to_string(s.port));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(where.port);
    std::memcpy(&name.sin_addr, where.host, sizeof(name.sin_addr));

    const cw::socket::service net(s.device, {.threads = s.host_threads});
    cw::stream stream(s.device);
    cw::buffer<sockaddr_in> addr(s.device, std::span<const sockaddr_in>(&name, 1));
    cw::buffer<int> outcome(s.device, static_cast<std::size_t>(s.blocks));
    cw::launch(stream, {.blocks = s.blocks, .threads = s.threads, .shared_bytes = message_bytes},
               gpuclient{}, net.device(), addr.data(), outcome.data());
    stream.sync();
    for (const int o : outcome.read()) {
      if (o != 0) {
        std::fprintf(stderr, "a block failed: %s\n", std::strerror(-o));
        return 1;
      }
    }
    std::printf("%d blocks: %d messages of %d bytes each came back as they were\n", s.blocks,
                messages, message_bytes);
    return 0;
  });
}
