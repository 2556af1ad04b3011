// libFuzzer's way into the engines of the example servers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/servers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wrong = fuzz::ask_engine({reinterpret_cast<const std::byte*>(data), size});
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
