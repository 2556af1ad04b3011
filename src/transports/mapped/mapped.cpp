#include "mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "crosswarp/options.hpp"
#include "cuda_share.hpp"
#include "node_segment.hpp"

namespace crosswarp::mapped {

using world_impl::packer;
using world_impl::unpacker;

namespace {

/// Everybody's address, when all ranks are threads of this process.
std::vector<std::byte*> exchange_addresses(const request& r, void* mine) {
  std::vector<std::byte*> base(static_cast<std::size_t>(r.boot.size()), nullptr);
  const auto all =
      r.boot.allgather(packer().u64(reinterpret_cast<std::uint64_t>(mine)).take(), r.timeout);
  for (const int rank : r.who.locals) {
    const auto i = static_cast<std::size_t>(rank);
    base[i] = reinterpret_cast<std::byte*>(unpacker(all[i]).u64());
  }
  return base;
}

/// Memory of a rank that is a thread of this process, owned by it.
class own_memory final : public mapping {
 public:
  own_memory(const request& r, std::size_t bytes) : device_(r.device), kind_(r.kind), bytes_(bytes) {
    if (on_host()) {
      check_host_memory(bytes, r.who.locals.size());
      // Pages come when they are first touched.
      mine_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mine_ == MAP_FAILED) {
        mine_ = nullptr;
        throw error::from_errno(errno, "mmap", options::print_bytes(bytes));
      }
    } else {
      mine_ = exec::allocate(device_, kind_, bytes);
    }
    base = exchange_addresses(r, mine_);
    how = "same process";
  }
  ~own_memory() override {
    if (mine_ == nullptr) return;
    on_host() ? (void)munmap(mine_, bytes_) : exec::release(device_, kind_, mine_);
  }
  own_memory(const own_memory&) = delete;
  own_memory& operator=(const own_memory&) = delete;

 private:
  [[nodiscard]] bool on_host() const { return device_.kind() == device_kind::cpu; }
  device_ref device_;
  memory_kind kind_;
  std::size_t bytes_;
  void* mine_ = nullptr;
};

class borrowed_memory final : public mapping {
 public:
  borrowed_memory(const request& r, void* p) {
    base = exchange_addresses(r, p);
    how = "same process";
  }
};

/// Makes private pages shared where they lie: their contents move to a shared segment, which is
/// then mapped over them. The pages at both ends come along whole.
class shared_in_place final : public node_segment {
 public:
  shared_in_place(const request& r, void* p, std::size_t bytes)
      : node_segment(r, pages(p, bytes).length), pages_(pages(p, bytes)) {
    std::byte* const slice = base[static_cast<std::size_t>(r.boot.rank())];
    if (pages_.length > 0) {
      std::memcpy(slice, pages_.start, pages_.length);
      replace(MAP_SHARED, fd(), my_offset());
    }
    // What others need to find the buffer in this rank's slice.
    const auto inside = static_cast<std::size_t>(static_cast<std::byte*>(p) - pages_.start);
    const auto all = r.boot.allgather(packer().u64(inside).take(), r.timeout);
    for (const int rank : r.who.locals) {
      const auto i = static_cast<std::size_t>(rank);
      base[i] += unpacker(all[i]).u64();
    }
    base[static_cast<std::size_t>(r.boot.rank())] = static_cast<std::byte*>(p);
  }
  ~shared_in_place() override {
    if (pages_.length == 0) return;
    const std::vector<std::byte> kept(pages_.start, pages_.start + pages_.length);
    replace(MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(pages_.start, kept.data(), kept.size());
  }
  shared_in_place(const shared_in_place&) = delete;
  shared_in_place& operator=(const shared_in_place&) = delete;

 private:
  struct range {
    std::byte* start;
    std::size_t length;
  };
  static range pages(void* p, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(p) / page * page;
    const auto last = (reinterpret_cast<std::uintptr_t>(p) + bytes + page - 1) / page * page;
    return {reinterpret_cast<std::byte*>(first), bytes == 0 ? 0 : last - first};
  }
  void replace(int flags, int fd, std::size_t offset) const {
    void* at = mmap(pages_.start, pages_.length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd,
                    static_cast<off_t>(offset));
    if (at == MAP_FAILED) throw error::from_errno(errno, "mmap", "sharing a buffer in place");
  }
  range pages_;
};

}  // namespace

std::unique_ptr<mapping> map_new(const request& r, std::size_t bytes) {
  if (r.boot.in_process()) return std::make_unique<own_memory>(r, bytes);
  if (r.device.kind() == device_kind::cuda && r.kind == memory_kind::device) {
    return share_new_on_gpu(r, bytes);
  }
  return std::make_unique<node_segment>(r, bytes);
}

std::unique_ptr<mapping> map_existing(const request& r, void* p, std::size_t bytes) {
  if (r.boot.in_process()) return std::make_unique<borrowed_memory>(r, p);
  if (r.device.kind() == device_kind::cuda) return share_existing_on_gpu(r, p, bytes);
  return std::make_unique<shared_in_place>(r, p, bytes);
}

}  // namespace crosswarp::mapped
