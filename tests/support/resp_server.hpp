// A table of the RESP server and its engine, on the device of the test. The kernels are in
// device/resp_server.cpp, so that they are compiled once.
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

class server {
 public:
  explicit server(std::size_t bytes = 8U << 20U, servers::table_options t = {},
                  servers::resp_options o = {});

  /// The answers to several connections at once.
  [[nodiscard]] std::vector<serve::answer> ask_all(const std::vector<std::string>& inputs,
                                                   const serve::way& w = {}) const;
  serve::answer ask(const std::string& in, const serve::way& w = {}) const {
    return ask_all({in}, w)[0];
  }
  /// The answer to words.
  std::string operator()(const std::vector<std::string>& words) const {
    return ask(array(words)).text;
  }
  /// What of the table's memory is in use.
  [[nodiscard]] memory_use use() const;

 private:
  crosswarp::buffer<char> memory_;
  servers::resp engine_;
};
