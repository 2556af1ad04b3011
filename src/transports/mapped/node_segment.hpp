// Host memory shared by the processes of one machine.
#pragma once

#include "mapped.hpp"
#include "world/socket.hpp"

namespace crosswarp::mapped {

/// One anonymous segment (memfd) for all ranks of the machine, a slice for each: n ranks make n
/// mappings, and nothing has a name that could be left behind.
class node_segment : public mapping {
 public:
  /// `bytes`: the length of this rank's slice. Collective.
  node_segment(const request& r, std::size_t bytes);
  ~node_segment() override;
  node_segment(const node_segment&) = delete;
  node_segment& operator=(const node_segment&) = delete;

 protected:
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Where this rank's slice begins in the segment.
  [[nodiscard]] std::size_t my_offset() const noexcept { return my_offset_; }

 private:
  world_impl::descriptor fd_;
  std::byte* start_ = nullptr;
  std::size_t length_ = 0;
  std::size_t my_offset_ = 0;
  bool pinned_ = false;
};

/// Throws error(out_of_memory) unless the machine could hold `bytes` more.
void check_host_memory(std::size_t bytes_each, std::size_t ranks);

}  // namespace crosswarp::mapped
