#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <map>
#include <optional>
#include <thread>

#include "core/log.hpp"
#include "pmix_exchange.hpp"
#include "star.hpp"

namespace crosswarp::world_impl {
namespace {

/// While other threads do whatever they do; what they had printed is not lost, unless one of them
/// is stuck in printing.
[[noreturn]] void end_process(int code) {
  constexpr auto turn = std::chrono::milliseconds(1);
  int turns = 100;
  while (ftrylockfile(stdout) != 0 && --turns > 0) std::this_thread::sleep_for(turn);
  if (turns > 0) std::fflush(stdout);
  if (code == 0) pmix_exchange::leave();
  _exit(code);
}

class star_client final : public bootstrap {
 public:
  star_client(descriptor socket, const secret_key& secret, int rank, int size, int host_rank,
              std::shared_ptr<star_server> hosted)
      : bootstrap(rank, size, secret),
        hosted_(std::move(hosted)),
        host_rank_(host_rank),
        socket_(std::move(socket)),
        reader_([this] { listen(); }) {}

  ~star_client() override { leave(); }
  star_client(const star_client&) = delete;
  star_client& operator=(const star_client&) = delete;

  [[nodiscard]] bool in_process() const noexcept override { return false; }

  std::vector<bytes> allgather(bytes mine, nanoseconds timeout) override {
    const caller waits(*this);
    std::unique_lock lock(mutex_);
    throw_if_broken("allgather");
    const std::uint64_t number = gathers_++;
    const auto deadline = after(timeout + grace);
    log::trace(rank(), "allgather ", number, " of ", mine.size(), " bytes");
    post({gather,
          packer().u64(number).u64(static_cast<std::uint64_t>(timeout.count())).blob(mine).take()},
         deadline);
    changed_.wait_until(lock, deadline, [&] { return answers_.contains(number) || broken_; });
    if (const auto it = answers_.find(number); it != answers_.end()) {
      answer a = std::move(it->second);
      answers_.erase(it);
      if (a.absent < 0) return std::move(a.all);
      throw error(errc::timeout, "allgather", "did not come in time", a.absent);
    }
    throw_if_broken("allgather");
    throw error(errc::timeout, "allgather", "the bootstrap server does not answer");
  }

  void part(nanoseconds timeout) override {
    {
      const std::scoped_lock lock(mutex_);
      last_gather_ = gathers_;
    }
    barrier(timeout);
  }

  void put(const std::string& key, bytes value) override {
    const std::scoped_lock lock(mutex_);
    throw_if_broken("put");
    post({put_key, packer().text(key).blob(value).take()}, after(grace));
  }

  bytes get(const std::string& key, nanoseconds timeout) override {
    const caller waits(*this);
    std::unique_lock lock(mutex_);
    throw_if_broken("get");
    if (!board_.contains(key)) post({get_key, packer().text(key).take()}, after(grace));
    changed_.wait_for(lock, timeout, [&] { return board_.contains(key) || broken_; });
    if (board_.contains(key)) return board_.at(key);
    throw_if_broken("get");
    throw error(errc::timeout, "get", "nobody put '" + key + "'");
  }

  void check(const char* call) override {
    const std::scoped_lock lock(mutex_);
    throw_if_broken(call);
  }

  bool fail(const fault& f) override {
    std::function<void(const fault&)> report;
    {
      const std::scoped_lock lock(mutex_);
      if (broken_ || left_) return false;
      try {
        post({broken, packer()
                          .u32(static_cast<std::uint32_t>(f.what))
                          .u32(static_cast<std::uint32_t>(f.rank))
                          .text(f.why)
                          .take()},
             after(grace));
      } catch (const error&) {
        // The server is gone; everybody else has noticed that too.
      }
      told_ = true;
      report = note(f);
    }
    if (report) report(f);
    return true;
  }

  [[nodiscard]] bool told() override {
    const std::scoped_lock lock(mutex_);
    return told_;
  }

  void end_job(int code, bool failed) noexcept override {
    try {
      const std::scoped_lock lock(mutex_);
      post(quit_frame(static_cast<std::uint32_t>(code), failed), after(grace));
    } catch (const error&) {
      return;  // the server is gone, and with it the job
    }
    // The answer ends this process too, after the others were told: the server may be in it.
    std::this_thread::sleep_for(grace);
  }

  void leave() noexcept override {
    {
      const std::scoped_lock lock(mutex_);
      report_ = nullptr;
      if (!left_) {
        left_ = true;
        try {
          post({bye, {}}, after(std::chrono::seconds(1)));
        } catch (const error&) {
          // Nobody is left to be told.
        }
        ::shutdown(socket_.get(), SHUT_RDWR);
      }
    }
    if (reader_.joinable()) reader_.join();
  }

  void on_fault(std::function<void(const fault&)> report) override {
    std::optional<fault> already;
    {
      const std::scoped_lock lock(mutex_);
      already = broken_;
      if (!already) report_ = report;
    }
    if (already) report(*already);
  }

 private:
  struct answer {
    std::vector<bytes> all;
    int absent = -1;
  };
  static constexpr auto grace = std::chrono::seconds(5);
  static constexpr auto time_for_last_words = std::chrono::milliseconds(300);

  /// For as long as it lives, somebody waits.
  class caller {
   public:
    explicit caller(star_client& of) : of_(of) { of_.set_waiting(true); }
    ~caller() { of_.set_waiting(false); }
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;

   private:
    star_client& of_;
  };

  void throw_if_broken(const char* call) {
    if (!broken_) return;
    told_ = true;
    throw to_error(*broken_, call);
  }
  void post(const frame& f, time_point deadline) { send_frame(socket_.get(), f, deadline); }

  /// The reader's thread: until the connection ends, or the process does.
  void listen() {
    time_point until = after(std::chrono::hours(24 * 365));
    std::optional<int> code;
    try {
      for (;;) {
        const frame f = receive_frame(socket_.get(), member_limit, until);
        if (code && f.type == broken) continue;  // what breaks now only follows
        if (f.type != quit) {
          hear(f);
        } else if (!code) {
          unpacker u(f.body);
          code = static_cast<int>(u.u32());
          if (u.u32() == 0) end_process(*code);
          // Who fails at the same time has something to say, too, and may ask for it.
          until = after(time_for_last_words);
        }
      }
    } catch (const error&) {
      if (code) end_process(*code);
      const char* who = host_rank_ < 0 ? "the launcher is gone" : "its process ended";
      bool left = false;
      {
        const std::scoped_lock lock(mutex_);
        left = left_ || parted_;
      }
      if (!left) learn({status::peer_lost, host_rank_, who});
    }
  }

  void hear(const frame& f) {
    unpacker u(f.body);
    if (f.type == broken) {
      fault news{static_cast<status>(u.u32()), static_cast<int>(u.u32()), {}};
      news.why = u.text();
      return learn(news);
    }
    const std::scoped_lock lock(mutex_);
    if (f.type == gathered) {
      const std::uint64_t number = u.u64();
      answer a;
      for (std::uint32_t n = u.u32(); n > 0; --n) a.all.push_back(u.blob());
      answers_[number] = std::move(a);
      parted_ = parted_ || number == last_gather_;
    } else if (f.type == given_up) {
      const std::uint64_t number = u.u64();
      answers_[number].absent = static_cast<int>(u.u32());
    } else if (f.type == value_of) {
      const std::string key = u.text();
      board_[key] = u.blob();
    }
    changed_.notify_all();
  }

  /// Another's report.
  void learn(const fault& f) {
    std::function<void(const fault&)> report;
    // A caller who has his answer already is thrown it by his next call, at the latest at the end.
    const bool log_it = !waiting();
    {
      const std::scoped_lock lock(mutex_);
      if (broken_) return;
      told_ = log_it;
      report = note(f);
    }
    log::say(log_it ? log::level::error : log::level::debug, rank(), to_error(f, "world").what());
    if (report) report(f);
  }

  /// Under the lock. Returns whom to tell without it.
  std::function<void(const fault&)> note(const fault& f) {
    broken_ = f;
    changed_.notify_all();
    return std::exchange(report_, nullptr);
  }

  std::shared_ptr<star_server> hosted_;
  int host_rank_;
  descriptor socket_;
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::uint64_t gathers_ = 0;
  std::map<std::uint64_t, answer> answers_;
  std::map<std::string, bytes> board_;
  std::optional<fault> broken_;
  bool told_ = false;
  std::function<void(const fault&)> report_;
  std::optional<std::uint64_t> last_gather_;
  bool parted_ = false;  // all have met for the last time: the server may go before this rank
  bool left_ = false;
  std::thread reader_;  // last: starts when all else is there
};

struct admission {
  descriptor socket;
  int host_rank;
};

/// One try to be let in. Throws error(peer_lost) when the server hangs up.
admission knock(const std::string& address, const secret_key& secret, int world, int rank, int size,
                time_point deadline) {
  descriptor socket = connect_to(address, deadline);
  if (address.starts_with("unix:") && !same_user(socket.get())) {
    throw error(errc::refused, "join", "another user answers at " + address);
  }
  const auto expect = [&](std::uint32_t type) {
    frame f = receive_frame(socket.get(), stranger_limit, deadline);
    if (f.type == reject) throw error(errc::refused, "join", unpacker(f.body).text());
    if (f.type == type) return f;
    throw error(errc::refused, "join", address + " is not a bootstrap server of this version");
  };
  const frame greeting = expect(hello);
  nonce theirs{};
  unpacker(greeting.body).raw(theirs.data(), theirs.size());
  const nonce mine = make_secret();
  const auto w = static_cast<std::uint32_t>(world);
  const auto r = static_cast<std::uint32_t>(rank);
  const auto n = static_cast<std::uint32_t>(size);
  const proof ours = prove(secret, join_statement(theirs, mine, w, r, n));
  send_frame(socket.get(),
             {join, packer()
                        .u32(w)
                        .u32(r)
                        .u32(n)
                        .raw(mine.data(), mine.size())
                        .raw(ours.data(), ours.size())
                        .take()},
             deadline);
  const frame answer = expect(welcome);
  unpacker u(answer.body);
  const int host_rank = static_cast<int>(u.u32());
  proof shown{};
  u.raw(shown.data(), shown.size());
  if (!equal(shown, prove(secret, welcome_statement(theirs, mine)))) {
    throw error(errc::refused, "join", address + " does not know this job's secret");
  }
  return {std::move(socket), host_rank};
}

}  // namespace

std::shared_ptr<bootstrap> join_star(const std::string& address, const secret_key& secret,
                                     int world, int rank, int size, nanoseconds timeout,
                                     std::shared_ptr<star_server> hosted) {
  const auto deadline = after(timeout);
  // A server pestered by strangers closes the oldest connections, and cannot tell that one is a
  // member's that is about to speak.
  constexpr int attempts = 20;
  for (int i = 1;; ++i) {
    try {
      admission a = knock(address, secret, world, rank, size, deadline);
      return std::make_shared<star_client>(std::move(a.socket), secret, rank, size, a.host_rank,
                                           std::move(hosted));
    } catch (const error& e) {
      if (e.code() != errc::peer_lost) throw;
      if (i == attempts) {
        throw error(errc::refused, "join",
                    address + " is not a bootstrap server of this version: it hangs up");
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * i));
  }
}

}  // namespace crosswarp::world_impl
