// Jobs of the tests in this folder.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "support/process.hpp"

/// `crosswarp run <options> <this folder's rank program> <behaviour>`.
inline std::vector<std::string> job_command(std::vector<std::string> options,
                                            const std::vector<std::string>& behaviour) {
  std::vector<std::string> argv = {CROSSWARP_COMMAND, "run"};
  // Small, so that many ranks fit on any machine.
  const auto is_heap = [](const std::string& o) { return o.starts_with("--heap"); };
  if (std::none_of(options.begin(), options.end(), is_heap)) {
    options.insert(options.end(), {"--heap", "1M"});
  }
  if (const char* device = std::getenv("CROSSWARP_TEST_DEVICE")) {
    options.insert(options.end(), {"--device", device});
  }
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(CROSSWARP_RANK_PROGRAM);
  argv.insert(argv.end(), behaviour.begin(), behaviour.end());
  return argv;
}
inline std::vector<std::string> job_command(int ranks, const std::vector<std::string>& behaviour) {
  return job_command({"-n", std::to_string(ranks)}, behaviour);
}

inline std::vector<std::string> rank_program(const std::vector<std::string>& behaviour) {
  std::vector<std::string> argv = {CROSSWARP_RANK_PROGRAM};
  argv.insert(argv.end(), behaviour.begin(), behaviour.end());
  return argv;
}

/// A port that nobody uses now, and neither the next one.
inline int free_port() {
  for (int port = 20000 + getpid() % 20000;; port += 2) {
    bool free = true;
    for (const int p : {port, port + 1}) {
      const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(static_cast<std::uint16_t>(p));
      free = free && bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) == 0;
      close(s);
    }
    if (free) return port;
  }
}

/// Processes with the variables that torchrun sets.
class torchrun_job {
 public:
  torchrun_job(int size, int per_machine, const std::vector<std::string>& behaviour,
               const environment& extra = {}) {
    const std::string port = std::to_string(free_port());
    for (int r = 0; r < size; ++r) {
      environment e = extra;
      e["RANK"] = std::to_string(r);
      e["WORLD_SIZE"] = std::to_string(size);
      e["LOCAL_RANK"] = std::to_string(r % per_machine);
      e["LOCAL_WORLD_SIZE"] = std::to_string(per_machine);
      e["MASTER_ADDR"] = "127.0.0.1";
      e["MASTER_PORT"] = port;
      e["CROSSWARP_HEAP"] = "1M";
      ranks.push_back(std::make_unique<process>(rank_program(behaviour), e));
    }
  }
  void expect_ended() {
    for (const auto& r : ranks) ASSERT_TRUE(r->wait(seconds(30))) << r->report();
  }
  std::vector<std::unique_ptr<process>> ranks;
};
