#include "node_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "crosswarp/options.hpp"
#include "exec/backends.hpp"
#include "world/fd_exchange.hpp"

namespace crosswarp::mapped {

using world_impl::bytes;
using world_impl::descriptor;
using world_impl::packer;
using world_impl::unpacker;

namespace {

/// What this process may still use: the machine's, or less in a container.
std::size_t available_memory() {
  std::size_t kib = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string key, unit; info >> key;) {
    if (key == "MemAvailable:") {
      info >> kib;
      break;
    }
    std::getline(info, unit);
  }
  std::size_t available = kib * 1024;
  std::size_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) available = std::min(available, limit);
  return available;
}

constexpr std::size_t large_page = 2U << 20U;
constexpr std::size_t most_aligned = 16U << 20U;

/// To large pages; long memory to more, for blocks that must be, as long as little is lost by it.
std::size_t alignment_for(std::size_t bytes) {
  if (bytes < large_page) return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(std::bit_floor(bytes / 8), large_page, most_aligned);
}

std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

descriptor make_segment(std::size_t length) {
  descriptor fd(memfd_create("crosswarp", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.open()) throw error::from_errno(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(length)) != 0) {
    throw error::from_errno(errno, "ftruncate", options::print_bytes(length));
  }
  // Nobody can shrink it under the others' feet.
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

/// Maps all of a segment.
std::byte* map_aligned(int fd, std::size_t length, std::size_t alignment) {
  const auto check = [&](void* p) {
    if (p != MAP_FAILED) return static_cast<std::byte*>(p);
    throw error::from_errno(errno, "mmap", options::print_bytes(length) + " of shared memory");
  };
  // Room for it and for what comes before the first multiple; the rest is given back.
  const std::size_t room = length + alignment;
  std::byte* const from =
      check(mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  const std::size_t skip = round_up(reinterpret_cast<std::uintptr_t>(from), alignment) -
                           reinterpret_cast<std::uintptr_t>(from);
  void* const p = mmap(from + skip, length, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
  const int why = errno;
  if (p == MAP_FAILED) munmap(from, room);
  errno = why;
  std::byte* const start = check(p);
  if (skip > 0) munmap(from, skip);
  munmap(start + length, room - skip - length);
  return start;
}

}  // namespace

void check_host_memory(std::size_t bytes_each, std::size_t ranks) {
  const std::size_t available = available_memory();
  if (available == 0 || bytes_each <= available / ranks) return;
  throw error(
      errc::out_of_memory, "symmetric heap",
      options::print_bytes(bytes_each) + " on each of " + std::to_string(ranks) +
          " ranks of this machine, which has " + options::print_bytes(available) +
          " left; lower --heap of crosswarp run, or CROSSWARP_HEAP, or the number of ranks");
}

node_segment::node_segment(const request& r, std::size_t bytes_here) {
  alignment = alignment_for(bytes_here);
  const std::size_t mine = round_up(std::max<std::size_t>(bytes_here, 1), alignment);
  const auto lengths = r.boot.allgather(packer().u64(mine).take(), r.timeout);
  std::vector<std::size_t> offset;
  std::size_t largest = 0;
  for (const int rank : r.who.locals) {
    const std::size_t n = unpacker(lengths[static_cast<std::size_t>(rank)]).u64();
    offset.push_back(length_);
    largest = std::max(largest, n);
    length_ += n;
  }
  check_host_memory(largest, r.who.locals.size());
  descriptor made;
  if (r.who.locals.front() == r.boot.rank()) made = make_segment(length_);
  auto all = allgather_descriptors(r.boot, r.who.locals, made.get(), r.timeout);
  fd_ = std::move(all.front());
  start_ = map_aligned(fd_.get(), length_, alignment);
  if (r.device.kind() == device_kind::cuda) {
    exec::cuda::pin(r.device, start_, length_);
    pinned_ = true;
  }
  base.assign(static_cast<std::size_t>(r.boot.size()), nullptr);
  for (std::size_t i = 0; i < offset.size(); ++i) {
    const int rank = r.who.locals[i];
    base[static_cast<std::size_t>(rank)] = start_ + offset[i];
    if (rank == r.boot.rank()) my_offset_ = offset[i];
  }
  how = "memfd";
}

node_segment::~node_segment() {
  if (pinned_) exec::cuda::unpin(start_);
  if (start_ != nullptr) munmap(start_, length_);
}

}  // namespace crosswarp::mapped
