// Looking at this machine. Nothing here changes it, and nothing takes longer than some seconds.
#pragma once

#include <filesystem>

#include "facts.hpp"

namespace crosswarp::tool::doctor_impl {

cuda_facts probe_cuda();
mps_facts probe_mps();
limit probe_open_files();
memory_facts probe_memory();
core_facts probe_cores();
/// Starts processes: before anything has started threads.
peek_facts probe_peeking();
/// Loads it, in a process of its own: a broken module must not take this one with it.
engine_facts probe_engine(const std::string& name, bool built);
rdma_facts probe_rdma(const std::filesystem::path& sys = "/sys",
                      const std::filesystem::path& dev = "/dev",
                      const std::filesystem::path& proc = "/proc");
network_facts probe_network();
environment_facts probe_environment();

/// The smallest quota on the way from a process's cgroup up to the root, in CPUs. `membership` is
/// what /proc/self/cgroup says, `root` where cgroups are mounted.
std::optional<double> cpu_quota(const std::string& membership, const std::filesystem::path& root);

}  // namespace crosswarp::tool::doctor_impl
