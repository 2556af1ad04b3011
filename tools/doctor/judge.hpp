// What to think of what was seen. Pure: facts in, findings out.
#pragma once

#include <string>
#include <vector>

#include "facts.hpp"

namespace crosswarp::tool::doctor_impl {

enum class severity {
  ok,
  hint,     ///< works, but slower or for fewer uses than it could
  problem,  ///< something will not work
  skipped,  ///< there is nothing to look at
};
const char* to_string(severity s) noexcept;

struct finding {
  std::string area;
  severity how = severity::ok;
  std::string seen;
  std::string remedy;  ///< one line; empty where there is nothing to do
};

// ---- GPUs; `wanted`: CROSSWARP_DEVICE asks for one
finding judge_driver(const cuda_facts& f, bool wanted);
/// One for each kind of GPU.
std::vector<finding> judge_capability(const cuda_facts& f);
finding judge_mps(const mps_facts& f, const cuda_facts& cuda);
finding judge_peer_access(const cuda_facts& f);
finding judge_cuda_settings(const environment_facts& e, const cuda_facts& cuda);

// ---- limits; `ranks`: for how many there is to be room
finding judge_locked_memory(const memory_facts& f, const rdma_facts& rdma);
finding judge_open_files(const limit& f, int ranks);
finding judge_memfd(const memory_facts& f);
finding judge_shm(const memory_facts& f);
finding judge_mappings(const memory_facts& f);
finding judge_overcommit(const memory_facts& f);
/// `ranks` 0: nobody said how many.
finding judge_cores(const core_facts& f, int ranks);
finding judge_peeking(const peek_facts& f);

// ---- engines
/// `asked`: CROSSWARP_ENGINE names it.
finding judge_engine(const engine_facts& f, bool asked);
finding judge_ucx_gpu(const engine_facts& f, const cuda_facts& cuda);
finding judge_mpirun(const environment_facts& e, const engine_facts& mpi);

// ---- networks
finding judge_rdma(const rdma_facts& f);
/// Kernels that drive an adapter's queues themselves.
finding judge_gpu_rdma(const rdma_facts& f, const cuda_facts& cuda);
finding judge_loopback(const network_facts& f);
finding judge_host_name(const network_facts& f);
/// There, and back.
std::vector<finding> judge_reach(const reach_facts& f);
/// The same for who listened.
std::vector<finding> judge_answer(const reach_facts& f);

// ---- the environment
/// One for each variable that nobody reads.
std::vector<finding> judge_variables(const environment_facts& e);
/// Values that are refused or contradict each other.
std::vector<finding> judge_settings(const environment_facts& e);

/// 0 when nothing is worse than a hint, 1 when something will not work.
int exit_code(const std::vector<finding>& all) noexcept;

}  // namespace crosswarp::tool::doctor_impl
