#include "mapped.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

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

/// Zeroed memory of one device.
class zeroed {
 public:
  zeroed(device_ref d, memory_kind kind, std::size_t bytes)
      : device_(d), kind_(kind), bytes_(bytes) {
    if (on_host()) {
      // Pages come when they are first touched.
      at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at_ == MAP_FAILED) throw error::from_errno(errno, "mmap", options::print_bytes(bytes));
    } else {
      at_ = exec::allocate(device_, kind_, bytes);
    }
  }
  ~zeroed() { on_host() ? (void)munmap(at_, bytes_) : exec::release(device_, kind_, at_); }
  zeroed(const zeroed&) = delete;
  zeroed& operator=(const zeroed&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  [[nodiscard]] bool on_host() const { return device_.kind() == device_kind::cpu; }
  device_ref device_;
  memory_kind kind_;
  std::size_t bytes_;
  void* at_ = nullptr;
};

/// Ranks that are threads of this process, each with memory on a device of its own.
class memory_of_each final : public mapping {
 public:
  memory_of_each(const request& r, std::size_t bytes) : mine_(r.device, r.kind, bytes) {
    base = exchange_addresses(r, mine_.data());
    how = "same process";
  }

 private:
  zeroed mine_;
};

/// The same on one device: the first of them allocates for all, at equal distances.
class memory_of_all final : public mapping {
 public:
  memory_of_all(const request& r, std::size_t bytes) {
    constexpr std::size_t large = 2U << 20U;
    if (bytes >= large) alignment = large;
    const std::size_t distance = (bytes + alignment - 1) / alignment * alignment;
    // Those of the same process can hand each other what they own.
    const bool first = r.who.locals.front() == r.boot.rank();
    std::exception_ptr why;
    if (first) {
      try {
        whole_ =
            std::make_shared<zeroed>(r.device, r.kind, distance * r.who.locals.size() + alignment);
      } catch (...) {
        why = std::current_exception();
      }
    }
    const auto offered = exchange_addresses(r, whole_ ? &whole_ : nullptr);
    const auto* const from = reinterpret_cast<const std::shared_ptr<zeroed>*>(
        offered[static_cast<std::size_t>(r.who.locals.front())]);
    if (!first && from != nullptr) whole_ = *from;
    r.boot.barrier(r.timeout);  // all have taken it
    if (why) std::rethrow_exception(why);
    if (!whole_) {
      throw error(errc::out_of_memory, "symmetric heap",
                  "not allocated, see what is said of rank " + std::to_string(r.who.locals.front()),
                  r.who.locals.front());
    }
    const auto start = reinterpret_cast<std::uintptr_t>(whole_->data());
    std::byte* at = whole_->data() + (alignment - start % alignment) % alignment;
    base.assign(static_cast<std::size_t>(r.boot.size()), nullptr);
    for (const int rank : r.who.locals) {
      base[static_cast<std::size_t>(rank)] = at;
      at += distance;
    }
    if (r.device.kind() == device_kind::cuda && r.kind == memory_kind::device) {
      reach = device::scope::device;
    }
    how = "same process";
  }

 private:
  std::shared_ptr<zeroed> whole_;
};

std::unique_ptr<mapping> map_in_process(const request& r, std::size_t bytes) {
  const auto all = r.boot.allgather(packer()
                                        .u32(static_cast<std::uint32_t>(r.device.kind()))
                                        .u32(static_cast<std::uint32_t>(r.device.ordinal()))
                                        .u64(bytes)
                                        .take(),
                                    r.timeout);
  if (r.device.kind() == device_kind::cpu) check_host_memory(bytes, r.who.locals.size());
  const auto same = [&](int rank) {
    return all[static_cast<std::size_t>(rank)] ==
           all[static_cast<std::size_t>(r.who.locals.front())];
  };
  if (std::all_of(r.who.locals.begin(), r.who.locals.end(), same)) {
    return std::make_unique<memory_of_all>(r, bytes);
  }
  return std::make_unique<memory_of_each>(r, bytes);
}

class borrowed_memory final : public mapping {
 public:
  borrowed_memory(const request& r, void* p) {
    base = exchange_addresses(r, p);
    how = "same process";
  }
};

/// Whole pages, with what lies between the objects on them: AddressSanitizer is not to look.
__attribute__((no_sanitize("address"))) void copy_pages(std::byte* to, const std::byte* from,
                                                        std::size_t bytes) {
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(to);
  const auto* const old = reinterpret_cast<const volatile std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(*words); ++i) words[i] = old[i];
}

/// What this process has shared in place. A second time would take it from those who have it.
class shared_ranges {
 public:
  static shared_ranges& instance() {
    static shared_ranges all;
    return all;
  }
  [[nodiscard]] bool overlap(const std::byte* begin, std::size_t length) {
    const std::scoped_lock lock(mutex_);
    const auto next = ends_.lower_bound(begin + length);
    return next != ends_.begin() && std::prev(next)->second > begin;
  }
  void add(const std::byte* begin, std::size_t length) {
    const std::scoped_lock lock(mutex_);
    ends_.emplace(begin, begin + length);
  }
  void remove(const std::byte* begin) noexcept {
    const std::scoped_lock lock(mutex_);
    ends_.erase(begin);
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_;  // by where they begin
};

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
    shared_ranges::instance().add(start_, length_);
  }
  ~shared_in_place() override {
    if (length_ == 0) return;
    shared_ranges::instance().remove(start_);
    if (!is_still_there()) return;  // its owner has given it back, and somebody else may have it
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

  static std::string obstacle(const void* p, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(p) % page() != 0) {
      return "CPU memory is shared between processes by whole pages, and this begins inside one: "
             "take it from crosswarp::buffer, mmap, or aligned_alloc of whole pages; or allocate "
             "symmetric memory (symmetric_buffer, World.empty), which needs no registration";
    }
    if (shared_ranges::instance().overlap(static_cast<const std::byte*>(p), round_up(bytes))) {
      return "a part of it is shared with other processes already: end that registration first";
    }
    return {};
  }

 private:
  /// Whether all of it is still mapped from this segment. As the system lists it: a look at memory
  /// that is gone would be the end.
  [[nodiscard]] bool is_still_there() const {
    struct stat mine {};
    if (fstat(fd(), &mine) != 0) return false;
    std::ifstream maps("/proc/self/maps");
    std::size_t covered = 0;
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t begin = 0;
      std::uintptr_t end = 0;
      unsigned long inode = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %lu", &begin, &end, &inode) != 3) continue;
      if (inode != mine.st_ino) continue;
      const auto first = reinterpret_cast<std::uintptr_t>(start_);
      begin = std::max(begin, first);
      end = std::min(end, first + length_);
      if (begin < end) covered += end - begin;
    }
    return covered == length_;
  }
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  static std::size_t round_up(std::size_t n) { return (n + page() - 1) / page() * page(); }
  std::byte* start_;
  std::size_t length_;
};

}  // namespace

std::unique_ptr<mapping> map_new(const request& r, std::size_t bytes) {
  if (r.boot.in_process()) return map_in_process(r, bytes);
  if (r.device.kind() == device_kind::cuda && r.kind == memory_kind::device) {
    return share_new_on_gpu(r, bytes);
  }
  return std::make_unique<node_segment>(r, bytes);
}

namespace {

std::string obstacle(const request& r, void* p, std::size_t bytes) {
  if (r.device.kind() == device_kind::cuda) return gpu_obstacle(r, p, bytes);
  return r.boot.in_process() ? std::string() : shared_in_place::obstacle(p, bytes);
}

}  // namespace

void agree_to_share(const request& r, const std::string& obstacle) {
  const auto all = r.boot.allgather(packer().text(obstacle).take(), r.timeout);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string why = unpacker(all[i]).text();
    if (!why.empty()) {
      throw error(errc::not_supported, "registration", why, static_cast<int>(i));
    }
  }
}

std::unique_ptr<mapping> map_existing(const request& r, void* p, std::size_t bytes) {
  agree_to_share(r, obstacle(r, p, bytes));
  if (r.boot.in_process()) return std::make_unique<borrowed_memory>(r, p);
  if (r.device.kind() == device_kind::cuda) return share_existing_on_gpu(r, p, bytes);
  return std::make_unique<shared_in_place>(r, p, bytes);
}

}  // namespace crosswarp::mapped
