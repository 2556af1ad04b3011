#include "graph/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "crosswarp/error.hpp"

namespace crosswarp::graph {
namespace {

/// Whether a file of that name could be replaced by a whole one, or what is there is a device or a
/// pipe, which is written as it is.
bool is_replaced(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode);
}

/// Where a link leads: that is replaced, and not the link.
std::string without_links(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0 || !S_ISLNK(about.st_mode)) return path;
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : path;
}

/// mkostemp gives 0600; a file that people asked for has what their umask says.
mode_t usual_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666U & ~mask;
}

}  // namespace

mapped_file::mapped_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw error::from_errno(errno, path, "cannot be opened");
  struct stat about {};
  int bad = fstat(fd, &about) == 0 ? 0 : errno;
  if (bad == 0 && !S_ISREG(about.st_mode)) bad = EINVAL;
  const auto size = static_cast<std::size_t>(about.st_size);
  void* at = nullptr;
  if (bad == 0 && size > 0) {
    at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) bad = errno;
  }
  close(fd);
  if (bad != 0) throw error::from_errno(bad, path, "cannot be mapped");
  bytes_ = {static_cast<const std::byte*>(at), size};
}

mapped_file::~mapped_file() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

new_file::new_file(std::string path) : path_(std::move(path)) {
  if (!is_replaced(path_)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd_ < 0) throw error::from_errno(errno, path_, "cannot be opened");
    return;
  }
  path_ = without_links(path_);
  temporary_ = path_ + ".XXXXXX";
  fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) throw error::from_errno(errno, path_, "no file can be made beside it");
}

new_file::~new_file() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void new_file::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw error::from_errno(errno, path_, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void new_file::publish() {
  if (temporary_.empty()) {
    if (close(std::exchange(fd_, -1)) != 0) {
      throw error::from_errno(errno, path_, "cannot be written");
    }
    return;
  }
  // On the disk before it has its name: else a crash could leave the name of an empty file.
  if (fchmod(fd_, usual_mode()) != 0 || fsync(fd_) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw error::from_errno(errno, path_, "cannot be written");
  }
  close(std::exchange(fd_, -1));
}

}  // namespace crosswarp::graph
