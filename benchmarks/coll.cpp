// crosswarp bench coll: all_reduce against another library's.
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "bench.hpp"
#include "crosswarp/device_ref.hpp"
#include "crosswarp/error.hpp"

namespace crosswarp::bench {

namespace {

/// Lines of bytes and microseconds. With none of the variables by which a launcher speaks to this
/// process: mpirun would take itself for a rank.
std::map<std::size_t, double> times_of(const std::string& program, const coll_of_peer& what,
                                       const std::vector<std::size_t>& sizes) {
  std::string command =
      "env -i PATH=\"$PATH\" HOME=\"$HOME\" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" " + program + " " +
      what.op + " " + what.type + " " + what.redop;
  for (const std::size_t size : sizes) command += " " + std::to_string(size);
  command += " 2>/dev/null";
  std::map<std::size_t, double> all;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::size_t bytes = 0;
  double us = 0;
  while (pipe && std::fscanf(pipe.get(), "%zu %lf", &bytes, &us) == 2) all[bytes] = us;
  return all;
}

}  // namespace

bool has_mpi_peer() {
  return std::filesystem::exists(CROSSWARP_MPI_COLL_PEER);
}
bool has_nccl_peer() {
  return std::filesystem::exists(CROSSWARP_NCCL_PEER);
}

std::map<std::size_t, double> times_of_mpi(const coll_of_peer& what, int ranks,
                                           const std::vector<std::size_t>& sizes) {
  if (!has_mpi_peer()) return {};
  const std::string program = "mpirun --allow-run-as-root --oversubscribe -n " +
                              std::to_string(ranks) + " " + CROSSWARP_MPI_COLL_PEER;
  return times_of(program, what, sizes);
}

std::map<std::size_t, double> times_of_nccl(const coll_of_peer& what, int ranks,
                                            const std::vector<std::size_t>& sizes) {
  if (!has_nccl_peer()) return {};
  return times_of(CROSSWARP_NCCL_PEER " " + std::to_string(ranks), what, sizes);
}

std::vector<std::size_t> sizes_of(const setup& s) {
  std::vector<std::size_t> all;
  for (std::size_t bytes = s.bytes_from; bytes < s.bytes_to; bytes *= 4) all.push_back(bytes);
  all.push_back(s.bytes_to);
  return all;
}

namespace {

/// Who is measured beside ours. Throws error(not_supported) for one that was asked for and cannot.
std::string peer_for(const setup& s) {
  const bool gpu = s.device.kind() == device_kind::cuda;
  const auto refuse = [&](const std::string& why) {
    throw error(errc::not_supported, "--peer", s.peer + ": " + why);
  };
  if (s.peer.empty()) return !gpu && !s.quick && !s.graph && has_mpi_peer() ? "mpi" : "none";
  if (s.peer == "oshmem") return "none";  // for another suite of the same command
  if (s.peer == "mpi") {
    if (gpu) refuse("its program measures memory of the host; with --device cpu");
    if (s.graph) refuse("it has no bfloat16, which --graph measures");
    if (!has_mpi_peer()) refuse("its program is not there: build with MPI (libopenmpi-dev)");
  } else if (s.peer == "nccl") {
    if (!gpu) refuse("it knows GPUs alone; with --device cuda");
    if (cuda_device_count() < s.coll_ranks) {
      refuse("each rank needs a GPU of its own; " + std::to_string(s.coll_ranks) +
             " ranks, but GPUs: " + std::to_string(cuda_device_count()));
    }
    if (!has_nccl_peer()) refuse("build the target crosswarp_peer_nccl_coll");
  }
  return s.peer;
}

}  // namespace

std::vector<row> bench_coll(const setup& s, const rank_runner& run_ranks) {
  const std::string peer = peer_for(s);
  setup these = s;
  these.ranks = s.coll_ranks;
  if (these.quick) these.bytes_to = std::min<std::size_t>(these.bytes_to, 1U << 20U);
  coll_of_peer what;
  if (!s.op.empty()) what.op = s.op;
  if (s.graph) what.type = "bf16";
  std::vector<row> rows = run_ranks(s.graph ? "coll-recorded" : "coll-" + what.op, these);
  if (peer == "none") return rows;
  const auto measure = peer == "mpi" ? &times_of_mpi : &times_of_nccl;
  const auto theirs = measure(what, these.ranks, sizes_of(these));
  if (theirs.empty() && !s.peer.empty()) {
    throw error(errc::system, "--peer", peer + ": its program measured nothing");
  }
  for (row& r : rows) {
    const auto found = theirs.find(r.bytes.value_or(0));
    // What goes on after the sum, a peer has not.
    if (found == theirs.end() || !r.what.starts_with(what.op)) continue;
    r.peer = peer;
    r.peer_median = found->second;
  }
  return rows;
}

}  // namespace crosswarp::bench
