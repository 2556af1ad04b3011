// Where the ranks of one process that share a device meet to launch together.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "bootstrap.hpp"
#include "crosswarp/world_launch.hpp"

namespace crosswarp::world_impl {

/// One for each device that ranks of this process share. Launch n of a rank meets launch n of the
/// others.
class launch_gather {
 public:
  explicit launch_gather(std::vector<int> ranks) : ranks_(std::move(ranks)) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// See gather_launch().
  void meet(int rank, std::uint64_t number, const launch_part& mine, bootstrap& boot,
            nanoseconds timeout, const std::function<void(std::span<const launch_part>)>& start);

 private:
  struct meeting {
    std::vector<const launch_part*> parts;
    std::size_t arrived = 0;
    bool over = false;
    std::exception_ptr failure;
  };
  static void check_equal(const meeting& m);
  [[noreturn]] void throw_late(const meeting& m) const;

  std::vector<int> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<meeting>> meetings_;
};

}  // namespace crosswarp::world_impl
