// Jobs of the tests in this folder.
#pragma once

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
