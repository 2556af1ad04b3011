// A table of the RESP server and its engine, on the device of the test.
#pragma once

#include <string>
#include <vector>

#include "../examples/servers/resp.hpp"
#include "support/serve.hpp"

inline std::string bulk(const std::string& s) {
  return "$" + std::to_string(s.size()) + "\r\n" + s + "\r\n";
}
inline std::string array(const std::vector<std::string>& parts) {
  std::string all = "*" + std::to_string(parts.size()) + "\r\n";
  for (const auto& p : parts) all += bulk(p);
  return all;
}

struct memory_use {
  std::uint64_t blocks;
  std::uint64_t chunks;
};
struct measure {
  CW_FN void operator()(const crosswarp::device::kernel_context&, const servers::table& t,
                        memory_use* use) const {
    *use = {t.blocks_in_use(), t.memory().chunks_in_use()};
  }
};

/// A table and its engine.
class server {
 public:
  explicit server(std::size_t bytes = 8U << 20U, servers::table_options t = {},
                  servers::resp_options o = {})
      : memory_(test_device(), bytes), engine_({memory_.data(), bytes, t}, o) {}

  [[nodiscard]] const servers::resp& engine() const { return engine_; }
  serve::answer ask(const std::string& in, const serve::way& w = {}) const {
    return serve::ask<servers::resp_connection>(engine_, {in}, w)[0];
  }
  /// The answer to words.
  std::string operator()(const std::vector<std::string>& words) const {
    return ask(array(words)).text;
  }
  memory_use use() const {
    crosswarp::stream s(test_device());
    crosswarp::buffer<memory_use> use(s.device(), 1);
    crosswarp::launch(s, {}, measure{}, engine_.keys(), use.data());
    s.sync();
    return use.read()[0];
  }

 private:
  crosswarp::buffer<char> memory_;
  servers::resp engine_;
};
