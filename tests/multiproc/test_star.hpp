// A bootstrap server in the test's own process.
#pragma once

#include <random>

#include "world/star.hpp"

namespace crosswarp::world_impl {

/// A server as the launcher has it.
struct star {
  explicit star(int n)
      : size(n),
        secret(make_secret()),
        server(std::make_shared<star_server>(listen_tcp("127.0.0.1", 0, "127.0.0.1"), n, secret,
                                             -1)) {}
  [[nodiscard]] descriptor stranger() const {
    return connect_to(server->address(), after(std::chrono::seconds(20)));
  }
  [[nodiscard]] std::shared_ptr<bootstrap> join(int rank) const {
    return join_star(server->address(), secret, 0, rank, size, std::chrono::seconds(20));
  }
  int size;
  secret_key secret;
  std::shared_ptr<star_server> server;
};

inline bytes random_bytes(std::mt19937_64& random, std::size_t count) {
  bytes b(count);
  for (std::byte& x : b) x = std::byte(random());
  return b;
}

}  // namespace crosswarp::world_impl
