#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <thread>

#include "core/log.hpp"
#include "star.hpp"

namespace crosswarp::world_impl {

bytes join_statement(const nonce& server, const nonce& client, std::uint32_t world,
                     std::uint32_t rank, std::uint32_t size) {
  return packer()
      .text("join")
      .raw(server.data(), server.size())
      .raw(client.data(), client.size())
      .u32(world)
      .u32(rank)
      .u32(size)
      .take();
}

bytes welcome_statement(const nonce& server, const nonce& client) {
  return packer()
      .text("welcome")
      .raw(client.data(), client.size())
      .raw(server.data(), server.size())
      .take();
}

namespace {

constexpr auto handshake_limit = std::chrono::seconds(5);
constexpr std::size_t strangers_at_once = 512;

struct connection {
  descriptor socket;
  nonce challenge{};
  time_point accepted;
  bytes in;
  bytes out;
  bool member = false;
  bool closing = false;  // closed once `out` is empty
  std::uint32_t world = 0;
  int rank = -1;
};

struct gather_round {
  std::vector<std::optional<bytes>> slots;
  std::size_t arrived = 0;
  time_point deadline;
};

/// One world of the job.
struct hall {
  std::map<int, connection*> members;
  std::vector<bool> left;
  std::map<std::uint64_t, gather_round> rounds;
  std::uint64_t given_up_before = 0;  // rounds below this number are over
  std::map<std::string, bytes> board;
  std::vector<std::pair<connection*, std::string>> waiting_gets;
  std::optional<fault> wreck;
};

/// Who is at the other end, for people.
std::string name_of(int socket) {
  sockaddr_in a{};
  socklen_t length = sizeof(a);
  char text[INET_ADDRSTRLEN] = {};
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&a), &length) != 0 ||
      a.sin_family != AF_INET || inet_ntop(AF_INET, &a.sin_addr, text, sizeof(text)) == nullptr) {
    return "a process of this machine";
  }
  return std::string(text) + ":" + std::to_string(ntohs(a.sin_port));
}

frame broken_frame(const fault& f) {
  return {broken, packer()
                      .u32(static_cast<std::uint32_t>(f.what))
                      .u32(static_cast<std::uint32_t>(f.rank))
                      .text(f.why)
                      .take()};
}

}  // namespace

class star_server::impl {
 public:
  impl(listener where, int size, const secret_key& secret, int host_rank)
      : listener_(std::move(where)),
        size_(size),
        secret_(secret),
        host_rank_(host_rank),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        gone_(static_cast<std::size_t>(size)) {
    if (!wake_.open()) throw error::from_errno(errno, "eventfd");
    thread_ = std::thread([this] { serve(); });
  }
  ~impl() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    ring();
    thread_.join();
  }
  impl(const impl&) = delete;
  impl& operator=(const impl&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return listener_.address; }

  [[nodiscard]] int first_culprit() const noexcept { return culprit_.load(); }
  [[nodiscard]] std::optional<int> chosen_code() const noexcept {
    const std::scoped_lock lock(mutex_);
    return chosen_code_;
  }

  void rank_gone(int rank, const std::string& why) {
    {
      const std::scoped_lock lock(mutex_);
      reports_.emplace_back(rank, why);
    }
    ring();
  }

 private:
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof(one));
  }

  // ---- the loop; everything below runs on the server's thread

  void serve() {
    while (take_orders()) {
      std::vector<pollfd> watch = {{wake_.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
      std::vector<connection*> of;
      for (const auto& c : connections_) {
        const auto events = static_cast<short>(c->out.empty() ? POLLIN : POLLIN | POLLOUT);
        watch.push_back({c->socket.get(), events, 0});
        of.push_back(c.get());
      }
      const int ready = ::poll(watch.data(), watch.size(), milliseconds_to_next_deadline());
      if (ready < 0 && errno != EINTR) return;
      if (ready > 0) {
        if ((watch[0].revents & POLLIN) != 0) drain_wake();
        for (std::size_t i = 0; i < of.size(); ++i) attend(*of[i], watch[i + 2].revents);
        if ((watch[1].revents & POLLIN) != 0) admit();
      }
      pass_deadlines();
      std::erase_if(connections_, [](const auto& c) { return !c->socket.open(); });
    }
  }

  bool take_orders() {
    std::vector<std::pair<int, std::string>> reports;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return false;
      reports.swap(reports_);
    }
    for (const auto& [rank, why] : reports) {
      // What the process said before it ended has arrived: its goodbye, if it said one.
      for (const auto& c : connections_) {
        if (c->member && c->rank == rank && c->socket.open()) attend(*c, POLLIN);
      }
      gone_[static_cast<std::size_t>(rank)] = why;
      for (auto& [number, h] : halls_) {
        if (!h.left[static_cast<std::size_t>(rank)]) wreck(h, {status::peer_lost, rank, why});
      }
    }
    return true;
  }

  void drain_wake() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
  }

  [[nodiscard]] int milliseconds_to_next_deadline() const {
    std::optional<time_point> next;
    const auto consider = [&](time_point t) { next = next ? std::min(*next, t) : t; };
    for (const auto& c : connections_) {
      if (!c->member) consider(c->accepted + handshake_limit);
    }
    for (const auto& [number, h] : halls_) {
      for (const auto& [n, r] : h.rounds) consider(r.deadline);
    }
    if (!next) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        *next - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<long>(left.count() + 1, 0, 60'000));
  }

  void pass_deadlines() {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& c : connections_) {
      if (!c->member && now >= c->accepted + handshake_limit) refuse(*c, "it says nothing");
    }
    for (auto& [number, h] : halls_) {
      for (auto it = h.rounds.begin(); it != h.rounds.end();) {
        it = now >= it->second.deadline ? give_up(h, it) : std::next(it);
      }
    }
  }

  // ---- connections

  void admit() {
    for (;;) {
      descriptor s(
          ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!s.open()) return;  // none left, or no descriptors left: the next round tries again
      if (listener_.address.starts_with("unix:") && !same_user(s.get())) {
        log::debug(host_rank_, "refused a connection of another user");
        continue;  // closes it
      }
      const int on = 1;
      setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const auto strangers = static_cast<std::size_t>(
          std::count_if(connections_.begin(), connections_.end(),
                        [](const auto& c) { return !c->member && c->socket.open(); }));
      if (strangers >= strangers_at_once + static_cast<std::size_t>(size_)) drop_oldest_stranger();
      auto c = std::make_unique<connection>();
      c->socket = std::move(s);
      c->accepted = std::chrono::steady_clock::now();
      c->challenge = make_secret();
      say(*c, {hello, packer().raw(c->challenge.data(), c->challenge.size()).take()});
      connections_.push_back(std::move(c));
    }
  }

  /// Connections are in the order they came.
  void drop_oldest_stranger() {
    const auto it = std::find_if(connections_.begin(), connections_.end(),
                                 [](const auto& c) { return !c->member && c->socket.open(); });
    if (it != connections_.end()) refuse(**it, "there are too many strangers");
  }

  /// Closes a stranger's connection.
  void refuse(connection& c, const std::string& why) {
    if (!c.socket.open()) return;
    if (log::on(log::level::debug)) {
      log::debug(host_rank_, "refused ", name_of(c.socket.get()), ": ", why);
    }
    drop(c);
  }

  void attend(connection& c, short events) {
    try {
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) listen_to(c);
      if (c.socket.open() && !c.out.empty()) flush(c);
    } catch (const error&) {
      lose(c, "sent something that is no message");
    }
  }

  void listen_to(connection& c) {
    std::byte chunk[65536];
    for (;;) {
      const ssize_t n = ::recv(c.socket.get(), chunk, sizeof(chunk), 0);
      if (n > 0) {
        c.in.insert(c.in.end(), chunk, chunk + n);
        if (!c.member && c.in.size() > stranger_limit + frame_header) break;
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      hear(c);  // what came before the end still counts
      return lose(c, c.member ? "its process ended" : "it hung up");
    }
    hear(c);
  }

  void hear(connection& c) {
    frame f;
    while (c.socket.open() && decode(c.in, f, c.member ? member_limit : stranger_limit)) {
      c.member ? obey(c, f) : introduce(c, f);
    }
  }

  void say(connection& c, const frame& f) {
    const bytes data = encode(f);
    c.out.insert(c.out.end(), data.begin(), data.end());
    flush(c);
  }

  void flush(connection& c) {
    while (!c.out.empty() && c.socket.open()) {
      const ssize_t n = ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
      if (n > 0) {
        c.out.erase(c.out.begin(), c.out.begin() + n);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      } else if (errno != EINTR) {
        return;  // the next read sees why
      }
    }
    if (c.closing) drop(c);
  }

  /// Closes without a word to the others.
  void drop(connection& c) {
    if (c.member) {
      hall& h = halls_.at(c.world);
      h.members.erase(c.rank);
      std::erase_if(h.waiting_gets, [&](const auto& w) { return w.first == &c; });
    }
    c.socket.reset();
  }

  /// The connection ended; a member who had not said goodbye is dead.
  void lose(connection& c, const std::string& why) {
    if (!c.socket.open()) return;
    if (!c.member) return refuse(c, why);
    const std::uint32_t world = c.world;
    const int rank = c.rank;
    drop(c);
    hall& h = halls_.at(world);
    if (!h.left[static_cast<std::size_t>(rank)]) wreck(h, {status::peer_lost, rank, why});
  }

  // ---- strangers

  void turn_away(connection& c, const std::string& reason) {
    if (log::on(log::level::debug)) {
      log::debug(host_rank_, "refused ", name_of(c.socket.get()), ": ", reason);
    }
    c.closing = true;
    say(c, {reject, packer().text(reason).take()});
  }

  void introduce(connection& c, const frame& f) {
    if (f.type != join) return refuse(c, "it does not ask to join");
    unpacker u(f.body);
    const std::uint32_t world = u.u32();
    const std::uint32_t rank = u.u32();
    const std::uint32_t size = u.u32();
    nonce theirs{};
    proof shown{};
    u.raw(theirs.data(), theirs.size());
    u.raw(shown.data(), shown.size());
    if (!equal(shown, prove(secret_, join_statement(c.challenge, theirs, world, rank, size)))) {
      return turn_away(c, "the secret is not this job's");
    }
    if (size != static_cast<std::uint32_t>(size_)) {
      return turn_away(
          c, "this job has " + std::to_string(size_) + " ranks, not " + std::to_string(size));
    }
    if (rank >= static_cast<std::uint32_t>(size_)) {
      return turn_away(c, "rank " + std::to_string(rank) + " is out of range");
    }
    hall& h = hall_of(world);
    const int r = static_cast<int>(rank);
    if (h.members.contains(r) || h.left[rank]) {
      return turn_away(c, "rank " + std::to_string(rank) + " has joined already");
    }
    c.member = true;
    c.world = world;
    c.rank = r;
    h.members[r] = &c;
    const proof ours = prove(secret_, welcome_statement(c.challenge, theirs));
    say(c, {welcome, packer()
                         .u32(static_cast<std::uint32_t>(host_rank_))
                         .raw(ours.data(), ours.size())
                         .take()});
    if (h.wreck) say(c, broken_frame(*h.wreck));
    if (end_) say(c, *end_);
  }

  hall& hall_of(std::uint32_t world) {
    hall& h = halls_[world];
    if (h.left.empty()) {
      h.left.resize(static_cast<std::size_t>(size_));
      for (std::size_t r = 0; r < gone_.size(); ++r) {
        if (!gone_[r].empty()) wreck(h, {status::peer_lost, static_cast<int>(r), gone_[r]});
      }
    }
    return h;
  }

  // ---- members

  void obey(connection& c, const frame& f) {
    hall& h = halls_.at(c.world);
    unpacker u(f.body);
    switch (f.type) {
      case gather:
        return on_gather(h, c, u);
      case put_key:
        return on_put(h, u);
      case get_key:
        return on_get(h, c, u);
      case broken: {
        fault said{static_cast<status>(u.u32()), static_cast<int>(u.u32()), {}};
        said.why = u.text();
        return wreck(h, said);
      }
      case bye:
        return on_bye(h, c);
      case quit:
        return on_quit(c, u);
      default:
        throw error(errc::refused, "bootstrap", "an unknown message");
    }
  }

  void on_bye(hall& h, connection& c) {
    h.left[static_cast<std::size_t>(c.rank)] = true;
    h.members.erase(c.rank);
    for (const auto& [number, r] : h.rounds) {
      if (!r.slots[static_cast<std::size_t>(c.rank)]) {
        return wreck(h, {status::peer_lost, c.rank, "it has left the world"});
      }
    }
  }

  void on_quit(const connection& from, unpacker& u) {
    if (end_) return;
    const std::uint32_t code = u.u32();
    const bool failed = u.u32() != 0;
    end_ = quit_frame(code, failed);
    int none = -1;
    if (culprit_.compare_exchange_strong(none, from.rank) && !failed) {
      const std::scoped_lock lock(mutex_);
      chosen_code_ = static_cast<int>(code);
    }
    // Who hosts this server hears it last.
    for (const bool hosts : {false, true}) {
      for (const auto& c : connections_) {
        if (c->member && (c->rank == host_rank_) == hosts) say(*c, *end_);
      }
    }
  }

  void on_gather(hall& h, connection& c, unpacker& u) {
    const std::uint64_t number = u.u64();
    const auto timeout = nanoseconds(static_cast<std::int64_t>(u.u64()));
    bytes mine = u.blob();
    if (number < h.given_up_before) {
      return say(c,
                 {given_up, packer().u64(number).u32(static_cast<std::uint32_t>(c.rank)).take()});
    }
    const auto [it, first] = h.rounds.try_emplace(number);
    gather_round& r = it->second;
    if (first) {
      r.slots.resize(static_cast<std::size_t>(size_));
      r.deadline = after(timeout);
    }
    auto& slot = r.slots[static_cast<std::size_t>(c.rank)];
    if (slot) throw error(errc::refused, "bootstrap", "a rank came twice");
    slot = std::move(mine);
    if (++r.arrived < r.slots.size()) {
      for (std::size_t q = 0; q < h.left.size(); ++q) {
        if (h.left[q] && !r.slots[q]) {
          return wreck(h, {status::peer_lost, static_cast<int>(q), "it has left the world"});
        }
      }
      return;
    }
    packer p;
    p.u64(number).u32(static_cast<std::uint32_t>(size_));
    for (const auto& s : r.slots) p.blob(*s);
    const frame answer{gathered, p.take()};
    for (const auto& [rank, member] : h.members) say(*member, answer);
    h.rounds.erase(it);
  }

  std::map<std::uint64_t, gather_round>::iterator give_up(
      hall& h, std::map<std::uint64_t, gather_round>::iterator it) {
    const gather_round& r = it->second;
    const auto absent = std::find(r.slots.begin(), r.slots.end(), std::nullopt) - r.slots.begin();
    const frame answer{given_up,
                       packer().u64(it->first).u32(static_cast<std::uint32_t>(absent)).take()};
    for (const auto& [rank, member] : h.members) {
      if (r.slots[static_cast<std::size_t>(rank)]) say(*member, answer);
    }
    h.given_up_before = std::max(h.given_up_before, it->first + 1);
    return h.rounds.erase(it);
  }

  void on_put(hall& h, unpacker& u) {
    const std::string key = u.text();
    bytes value = u.blob();
    if (!h.board.emplace(key, std::move(value)).second) return;  // the first one counts
    const frame answer = value_frame(h, key);
    std::erase_if(h.waiting_gets, [&](const auto& w) {
      if (w.second != key) return false;
      say(*w.first, answer);
      return true;
    });
  }

  void on_get(hall& h, connection& c, unpacker& u) {
    const std::string key = u.text();
    if (h.board.contains(key)) {
      say(c, value_frame(h, key));
    } else {
      h.waiting_gets.emplace_back(&c, key);
    }
  }

  static frame value_frame(const hall& h, const std::string& key) {
    return {value_of, packer().text(key).blob(h.board.at(key)).take()};
  }

  /// The first report counts; all members hear of it.
  void wreck(hall& h, const fault& f) {
    if (h.wreck) return;
    h.wreck = f;
    int none = -1;
    culprit_.compare_exchange_strong(none, f.rank);
    log::debug(host_rank_, "tells ", h.members.size(), " ranks: ", to_error(f, "world").what());
    const frame news = broken_frame(f);
    for (const auto& [rank, member] : h.members) say(*member, news);
  }

  listener listener_;
  int size_;
  secret_key secret_;
  int host_rank_;
  descriptor wake_;
  std::vector<std::unique_ptr<connection>> connections_;
  std::map<std::uint32_t, hall> halls_;
  std::vector<std::string> gone_;  // by rank: why, empty while it lives
  std::optional<frame> end_;       // once a rank has ended the job

  std::atomic<int> culprit_{-1};
  mutable std::mutex mutex_;  // all below
  std::optional<int> chosen_code_;
  bool stopping_ = false;
  std::vector<std::pair<int, std::string>> reports_;

  std::thread thread_;
};

star_server::star_server(listener where, int size, const secret_key& secret, int host_rank)
    : impl_(std::make_unique<impl>(std::move(where), size, secret, host_rank)) {}
star_server::~star_server() = default;
const std::string& star_server::address() const noexcept {
  return impl_->address();
}
void star_server::rank_gone(int rank, const std::string& why) {
  impl_->rank_gone(rank, why);
}
int star_server::first_culprit() const noexcept {
  return impl_->first_culprit();
}
std::optional<int> star_server::chosen_code() const noexcept {
  return impl_->chosen_code();
}

}  // namespace crosswarp::world_impl
