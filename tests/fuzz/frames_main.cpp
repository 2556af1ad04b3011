// The entry that libFuzzer calls; see CONTRIBUTING.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/frames.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wrong = fuzz::read_frame(std::as_bytes(std::span(data, size)));
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
