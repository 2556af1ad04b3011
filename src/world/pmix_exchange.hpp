// The little of PMIx that a job started by mpirun or srun needs: who am I, and one message.
#pragma once

#include <chrono>
#include <string>

namespace crosswarp::world_impl {

using std::chrono::nanoseconds;

/// Connected to the job's PMIx server while it lives.
class pmix_exchange {
 public:
  /// True when the environment names a PMIx server with more than this process in the job.
  static bool offered();
  /// For a process that ends at once: a launcher takes one that goes without this for one that
  /// failed, whatever its exit code. Nothing of PMIx works afterwards.
  static void leave() noexcept;

  /// Throws error(not_supported) in a build without PMIx, error(system) when the server refuses.
  pmix_exchange();
  pmix_exchange(const pmix_exchange&) = delete;
  pmix_exchange& operator=(const pmix_exchange&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Ranks on this machine.
  [[nodiscard]] int local_size() const noexcept { return local_size_; }

  /// From rank 0 to all others, each once per key. Throw error(timeout) when a rank does not come.
  void publish(const std::string& key, const std::string& value, nanoseconds timeout);
  std::string receive(const std::string& key, nanoseconds timeout);

 private:
  int rank_ = 0;
  int size_ = 1;
  int local_size_ = 1;
};

}  // namespace crosswarp::world_impl
