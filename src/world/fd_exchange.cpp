#include "fd_exchange.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/log.hpp"
#include "star.hpp"

namespace crosswarp::world_impl {
namespace {

struct caller {
  descriptor socket;
  std::size_t position;  // in `locals`
};

bytes caller_statement(const nonce& challenge, std::uint32_t position, std::uint32_t has) {
  return packer()
      .text("descriptor")
      .raw(challenge.data(), challenge.size())
      .u32(position)
      .u32(has)
      .take();
}

/// Takes one member's call; none when it was a stranger.
bool answer_call(bootstrap& boot, descriptor socket, std::vector<descriptor>& all,
                 std::vector<caller>& callers, time_point deadline) {
  // A stranger must not hold up the job.
  const time_point soon = std::min(deadline, after(std::chrono::seconds(2)));
  try {
    if (!same_user(socket.get())) return false;
    const nonce challenge = make_secret();
    send_all(socket.get(), challenge, soon);
    std::uint32_t said[2] = {};
    proof shown{};
    receive_all(socket.get(), std::as_writable_bytes(std::span(said)), soon);
    receive_all(socket.get(), shown, soon);
    if (!equal(shown, prove(boot.secret(), caller_statement(challenge, said[0], said[1])))) {
      return false;
    }
    if (said[0] >= all.size()) return false;
    if (said[1] != 0) {
      all[said[0]] = std::move(receive_descriptors(socket.get(), 1, deadline).front());
    }
    callers.push_back({std::move(socket), said[0]});
    return true;
  } catch (const error&) {
    return false;
  }
}

std::vector<descriptor> collect_and_deal(bootstrap& boot, listener& where, std::size_t count,
                                         int fd, time_point deadline) {
  std::vector<descriptor> all(count);
  if (fd >= 0) all[0] = descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  std::vector<caller> callers;
  while (callers.size() + 1 < count) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd p{where.socket.get(), POLLIN, 0};
    if (left.count() <= 0) {
      throw error(errc::timeout, "descriptor exchange", "a rank of this machine did not call");
    }
    boot.check("descriptor exchange");
    if (::poll(&p, 1, static_cast<int>(std::min<long>(left.count(), 100))) <= 0) continue;
    descriptor s(::accept4(where.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (s.open() && !answer_call(boot, std::move(s), all, callers, deadline)) {
      log::debug(boot.rank(), "refused a stranger who asked for descriptors");
    }
  }
  std::vector<int> raw;
  bytes map(count);
  for (std::size_t i = 0; i < count; ++i) {
    map[i] = std::byte{all[i].open()};
    if (all[i].open()) raw.push_back(all[i].get());
  }
  for (const caller& c : callers) {
    send_all(c.socket.get(), map, deadline);
    send_descriptors(c.socket.get(), raw, deadline);
  }
  return all;
}

/// The collector may have died before it was called: then the bootstrap knows.
descriptor connect_while_alive(bootstrap& boot, const std::string& address, time_point deadline) {
  for (;;) {
    boot.check("descriptor exchange");
    try {
      return connect_to(address, std::min(deadline, after(std::chrono::milliseconds(100))));
    } catch (const error& e) {
      if (e.code() != errc::timeout || std::chrono::steady_clock::now() >= deadline) throw;
    }
  }
}

std::vector<descriptor> call_collector(bootstrap& boot, const std::string& address,
                                       std::size_t position, std::size_t count, int fd,
                                       time_point deadline) {
  const descriptor socket = connect_while_alive(boot, address, deadline);
  if (!same_user(socket.get())) {
    throw error(errc::refused, "descriptor exchange", "another user answers at " + address);
  }
  nonce challenge{};
  receive_all(socket.get(), challenge, deadline);
  const std::uint32_t said[2] = {static_cast<std::uint32_t>(position), fd >= 0 ? 1U : 0U};
  const proof ours = prove(boot.secret(), caller_statement(challenge, said[0], said[1]));
  send_all(socket.get(), std::as_bytes(std::span(said)), deadline);
  send_all(socket.get(), ours, deadline);
  if (fd >= 0) send_descriptors(socket.get(), std::span(&fd, 1), deadline);
  bytes map(count);
  receive_all(socket.get(), map, deadline);
  const auto present = static_cast<std::size_t>(std::count(map.begin(), map.end(), std::byte{1}));
  std::vector<descriptor> received = receive_descriptors(socket.get(), present, deadline);
  std::vector<descriptor> all(count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (map[i] == std::byte{1}) all[i] = std::move(received[next++]);
  }
  return all;
}

/// The collector has hung up: it died, or it gave up because another rank did. The bootstrap knows
/// that, or will soon.
void throw_culprit(bootstrap& boot, nanoseconds timeout) {
  constexpr nanoseconds soon = std::chrono::seconds(2);
  try {
    static_cast<void>(boot.get("descriptor exchange: nobody puts this", std::min(timeout, soon)));
  } catch (const error& e) {
    if (e.code() != errc::timeout) throw;
  }
}

}  // namespace

std::vector<descriptor> allgather_descriptors(bootstrap& boot, std::span<const int> locals, int fd,
                                              nanoseconds timeout) {
  const time_point deadline = after(timeout);
  const auto position = static_cast<std::size_t>(
      std::lower_bound(locals.begin(), locals.end(), boot.rank()) - locals.begin());
  listener where;
  if (position == 0 && locals.size() > 1) {
    where = listen_unix("crosswarp-fd-" + to_hex(make_secret()));
  }
  const auto addresses = boot.allgather(packer().text(where.address).take(), timeout);
  if (position == 0) return collect_and_deal(boot, where, locals.size(), fd, deadline);
  unpacker u(addresses[static_cast<std::size_t>(locals[0])]);
  try {
    return call_collector(boot, u.text(), position, locals.size(), fd, deadline);
  } catch (const error& e) {
    if (e.code() != errc::peer_lost) throw;
    throw_culprit(boot, timeout);
    throw error(errc::peer_lost, "descriptor exchange", "the connection to it was closed",
                locals[0]);
  }
}

}  // namespace crosswarp::world_impl
