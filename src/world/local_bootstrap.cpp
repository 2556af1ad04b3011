// Ranks that are threads of one process.
#include <condition_variable>
#include <map>
#include <optional>

#include "bootstrap.hpp"

namespace crosswarp::world_impl {
namespace {

/// One allgather: rank r's n-th call belongs to round n, also when others gave up on it.
struct round {
  explicit round(std::size_t n) : slots(n), present(n) {}
  std::vector<bytes> slots;
  std::vector<bool> present;
  std::size_t arrived = 0;
  std::size_t readers = 0;
  bool complete = false;
  int given_up_for = -1;  // the rank that did not come

  [[nodiscard]] int first_absent() const {
    for (std::size_t r = 0; r < present.size(); ++r) {
      if (!present[r]) return static_cast<int>(r);
    }
    return -1;
  }
};

/// What the ranks share.
struct meeting {
  explicit meeting(int n)
      : calls(static_cast<std::size_t>(n)), listeners(static_cast<std::size_t>(n)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, round> rounds;
  std::vector<std::uint64_t> calls;  // by rank
  std::map<std::string, bytes> board;
  std::optional<fault> broken;
  std::vector<std::function<void(const fault&)>> listeners;

  void throw_if_broken(const char* call) const {
    if (broken) throw to_error(*broken, call);
  }
};

class local_bootstrap final : public bootstrap {
 public:
  local_bootstrap(int rank, int size, const secret_key& s, std::shared_ptr<meeting> m)
      : bootstrap(rank, size, s), meeting_(std::move(m)) {}

  [[nodiscard]] bool in_process() const noexcept override { return true; }

  std::vector<bytes> allgather(bytes mine, nanoseconds timeout) override {
    meeting& m = *meeting_;
    std::unique_lock lock(m.mutex);
    m.throw_if_broken("allgather");
    const std::uint64_t number = m.calls[index()]++;
    round& r = m.rounds.try_emplace(number, m.calls.size()).first->second;
    r.slots[index()] = std::move(mine);
    r.present[index()] = true;
    if (++r.arrived == m.calls.size()) {
      r.complete = r.given_up_for < 0;
      m.changed.notify_all();
    }
    const auto over = [&] { return r.complete || r.given_up_for >= 0 || m.broken.has_value(); };
    if (!m.changed.wait_for(lock, timeout, over)) {
      r.given_up_for = r.first_absent();
      m.changed.notify_all();
    }
    const bool complete = r.complete;
    const int absent = r.given_up_for;
    std::vector<bytes> result;
    if (complete) result = r.slots;
    if (++r.readers == m.calls.size()) m.rounds.erase(number);
    if (complete) return result;
    m.throw_if_broken("allgather");
    throw error(errc::timeout, "allgather", "did not come in time", absent);
  }

  void put(const std::string& key, bytes value) override {
    meeting& m = *meeting_;
    const std::scoped_lock lock(m.mutex);
    if (!m.board.emplace(key, std::move(value)).second) {
      throw error(errc::invalid_argument, "put", "'" + key + "' is there already");
    }
    m.changed.notify_all();
  }

  bytes get(const std::string& key, nanoseconds timeout) override {
    meeting& m = *meeting_;
    std::unique_lock lock(m.mutex);
    const bool there = m.changed.wait_for(
        lock, timeout, [&] { return m.board.contains(key) || m.broken.has_value(); });
    if (m.board.contains(key)) return m.board.at(key);
    m.throw_if_broken("get");
    if (!there) throw error(errc::timeout, "get", "nobody put '" + key + "'");
    return {};
  }

  void check(const char* call) override {
    const std::scoped_lock lock(meeting_->mutex);
    meeting_->throw_if_broken(call);
  }

  bool fail(const fault& f) override {
    std::vector<std::function<void(const fault&)>> tell;
    {
      const std::scoped_lock lock(meeting_->mutex);
      if (meeting_->broken) return false;
      meeting_->broken = f;
      tell = meeting_->listeners;
      meeting_->changed.notify_all();
    }
    for (const auto& report : tell) {
      if (report) report(f);
    }
    return true;
  }

  /// It only ever comes by fail().
  [[nodiscard]] bool told() override {
    const std::scoped_lock lock(meeting_->mutex);
    return meeting_->broken.has_value();
  }

  void leave() noexcept override {
    const std::scoped_lock lock(meeting_->mutex);
    meeting_->listeners[index()] = nullptr;
  }

  void on_fault(std::function<void(const fault&)> report) override {
    std::optional<fault> already;
    {
      const std::scoped_lock lock(meeting_->mutex);
      meeting_->listeners[index()] = report;
      already = meeting_->broken;
    }
    if (already) report(*already);
  }

 private:
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(rank()); }
  std::shared_ptr<meeting> meeting_;
};

}  // namespace

std::vector<std::shared_ptr<bootstrap>> make_local_bootstraps(int size) {
  const auto shared = std::make_shared<meeting>(size);
  const secret_key secret = make_secret();
  std::vector<std::shared_ptr<bootstrap>> all;
  all.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    all.push_back(std::make_shared<local_bootstrap>(r, size, secret, shared));
  }
  return all;
}

}  // namespace crosswarp::world_impl
