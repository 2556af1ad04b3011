#include "output.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace crosswarp::tool {
namespace {

constexpr std::size_t longest_line = 64 * 1024;

/// All of it, or nothing more once the reader is gone.
void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd p{fd, POLLOUT, 0};
      ::poll(&p, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

void line_writer::put(std::string_view line) {
  std::string whole = prefix_;
  whole += line;
  whole += '\n';
  write_all(fd_, whole);
}

void line_writer::write(std::string_view bytes) {
  if (prefix_.empty()) return write_all(fd_, bytes);
  partial_ += bytes;
  std::size_t from = 0;
  for (std::size_t end = 0; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1) {
    put(std::string_view(partial_).substr(from, end - from));
  }
  partial_.erase(0, from);
  if (partial_.size() > longest_line) finish();
}

void line_writer::finish() {
  if (partial_.empty()) return;
  put(partial_);
  partial_.clear();
}

}  // namespace crosswarp::tool
