// A key-value server inside a kernel, for redis's clients: `redis-cli -p 7000`.
//
//   resp_server --device cpu|cuda --port 7000 [--host ADDRESS] [--blocks N] [--threads N]
//               [--idle SECONDS]
//
// The keys are in the device's memory; all blocks serve the same ones.
#include <random>

#include "resp_batch.hpp"

int main(int argc, char** argv) {
  using namespace servers;
  return guarded([&] {
    const settings s = parse(argc, argv, {.blocks = 64, .threads = 32, .idle = 0});
    constexpr std::size_t bytes = std::size_t{128} << 20U;
    cw::buffer<char> memory(s.device, bytes);
    std::random_device random;
    const table_options keys = {.shards = 64, .seed = std::uint64_t{random()} << 32U | random()};
    const resp_options options;
    return serve_with<resp_connection>(s,
                                       resp_batch(resp(table(memory.data(), bytes, keys), options)),
                                       options.request_bytes, options.answer_bytes);
  });
}
