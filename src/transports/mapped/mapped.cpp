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
  own_memory(const request& r, std::size_t bytes)
      : device_(r.device), kind_(r.kind), bytes_(bytes) {
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

/// Whole pages, with what lies between the objects on them: AddressSanitizer is not to look.
[[gnu::no_sanitize("address")]] void copy_pages(std::byte* to, const std::byte* from,
                                                std::size_t bytes) {
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(to);
  const auto* const old = reinterpret_cast<const volatile std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(*words); ++i) words[i] = old[i];
}

/// Makes private pages shared where they lie: their contents move to a shared segment, which is
/// then mapped over them. Whole pages only: what else lies on a page would be written by threads
/// that know nothing of the move.
class shared_in_place final : public node_segment {
 public:
  shared_in_place(const request& r, void* p, std::size_t bytes)
      : node_segment(r, bytes), start_(static_cast<std::byte*>(p)), length_(round_up(bytes)) {
    if (length_ == 0) return;
    std::byte*& mine = base[static_cast<std::size_t>(r.boot.rank())];
    copy_pages(mine, start_, length_);
    void* at = mmap(start_, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd(),
                    static_cast<off_t>(my_offset()));
    if (at == MAP_FAILED) throw error::from_errno(errno, "mmap", "sharing a buffer in place");
    mine = start_;
  }
  ~shared_in_place() override {
    if (length_ == 0) return;
    void* const own =
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return;  // stays shared, which nobody notices
    copy_pages(static_cast<std::byte*>(own), start_, length_);
    if (mremap(own, length_, length_, MREMAP_MAYMOVE | MREMAP_FIXED, start_) == MAP_FAILED) {
      munmap(own, length_);
    }
  }
  shared_in_place(const shared_in_place&) = delete;
  shared_in_place& operator=(const shared_in_place&) = delete;

  static std::string obstacle(const void* p) {
    if (reinterpret_cast<std::uintptr_t>(p) % page() == 0) return {};
    return "CPU memory is shared between processes by whole pages, and this begins inside one: "
           "take "
           "it from crosswarp::buffer, mmap, or aligned_alloc of whole pages";
  }

 private:
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  static std::size_t round_up(std::size_t n) { return (n + page() - 1) / page() * page(); }
  std::byte* start_;
  std::size_t length_;
};

}  // namespace

std::unique_ptr<mapping> map_new(const request& r, std::size_t bytes) {
  if (r.boot.in_process()) return std::make_unique<own_memory>(r, bytes);
  if (r.device.kind() == device_kind::cuda && r.kind == memory_kind::device) {
    return share_new_on_gpu(r, bytes);
  }
  return std::make_unique<node_segment>(r, bytes);
}

namespace {

/// All ranks throw when one cannot, so that none waits for it.
void check_shareable(const request& r, void* p) {
  const std::string mine =
      r.device.kind() == device_kind::cuda ? gpu_obstacle(r, p) : shared_in_place::obstacle(p);
  const auto all = r.boot.allgather(packer().text(mine).take(), r.timeout);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string why = unpacker(all[i]).text();
    if (!why.empty()) {
      throw error(errc::not_supported, "registration", why, static_cast<int>(i));
    }
  }
}

}  // namespace

std::unique_ptr<mapping> map_existing(const request& r, void* p, std::size_t bytes) {
  if (r.boot.in_process()) return std::make_unique<borrowed_memory>(r, p);
  check_shareable(r, p);
  if (r.device.kind() == device_kind::cuda) return share_existing_on_gpu(r, p, bytes);
  return std::make_unique<shared_in_place>(r, p, bytes);
}

}  // namespace crosswarp::mapped
