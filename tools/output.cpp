#include "output.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace crosswarp::tool {
namespace {

constexpr std::size_t longest_line = 64 * 1024;

/// What is still to be written, by destination: all ranks share it, so that lines stay whole.
std::map<int, std::string> pending;
int interrupter = -1;
bool giving_up = false;

/// Writes from the front of what is pending what can be written; the rest stays, unless nobody
/// will ever read it.
void write_some(int fd) {
  std::string& bytes = pending[fd];
  while (!bytes.empty()) {
    pollfd p[2] = {{fd, POLLOUT, 0}, {interrupter, POLLIN, 0}};
    const int ready = ::poll(p, 2, giving_up ? 0 : -1);
    if (ready < 0 && errno == EINTR) continue;
    if ((p[0].revents & POLLOUT) == 0) {
      if (giving_up || p[0].revents != 0) bytes.clear();
      return;
    }
    // At most what a pipe takes without blocking once it is writable.
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 4096));
    if (n >= 0) {
      bytes.erase(0, static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      bytes.clear();  // the reader is gone
    }
  }
}

}  // namespace

void line_writer::put(std::string_view line) {
  std::string whole = prefix_;
  whole += line;
  whole += '\n';
  send(whole);
}

void line_writer::send(std::string_view bytes) {
  pending[fd_] += bytes;
  write_some(fd_);
}

void line_writer::interrupt_by(int fd) {
  interrupter = fd;
}
void line_writer::give_up_when_blocked() {
  giving_up = true;
}

void line_writer::write(std::string_view bytes) {
  if (prefix_.empty()) return send(bytes);
  partial_ += bytes;
  std::size_t from = 0;
  for (std::size_t end = 0; (end = partial_.find('\n', from)) != std::string::npos;
       from = end + 1) {
    put(std::string_view(partial_).substr(from, end - from));
  }
  partial_.erase(0, from);
  if (partial_.size() > longest_line) finish();
}

void line_writer::finish() {
  if (!partial_.empty()) put(partial_);
  partial_.clear();
  write_some(fd_);
}

}  // namespace crosswarp::tool
