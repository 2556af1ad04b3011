#include "transports/local/local.hpp"

#include <deque>
#include <functional>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "memory/host_copy.hpp"
#include "transports/local/atomic_kernel.hpp"

namespace crosswarp::local {
namespace {

using namespace proxy_impl;

/// Regions by id, and where a place in them is mapped.
class region_table {
 public:
  void add(std::uint16_t id, const region_info& mine) {
    if (regions_.size() <= id) regions_.resize(id + std::size_t{1});
    regions_[id] = mine;
  }
  void remove(std::uint16_t id) noexcept { regions_[id] = {}; }
  [[nodiscard]] std::byte* at(const place& p) const {
    return regions_[p.region].mapped[static_cast<std::size_t>(p.pe)] + p.offset;
  }
  [[nodiscard]] bool on_host(const place& p) const { return regions_[p.region].on_host; }
  /// Some region of this rank that the host may read and write holds the range.
  [[nodiscard]] bool on_host(const std::byte* p, std::size_t bytes) const {
    for (const region_info& r : regions_) {
      if (r.on_host && r.base != nullptr && p >= r.base && p <= r.base + r.bytes &&
          bytes <= static_cast<std::size_t>(r.base + r.bytes - p)) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<region_info> regions_;
};

/// What all ranks that are mapped have in common: nobody has to be told of memory, and all is done
/// in its order.
class mapped_engine : public engine {
 public:
  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override {
    regions_.add(id, mine);
    return {};
  }
  void install_region(std::uint16_t /*id*/,
                      std::vector<std::vector<std::byte>> /*offers*/) override {}
  void remove_region(std::uint16_t id) noexcept override { regions_.remove(id); }
  bool fence() override { return true; }
  void lose(int /*pe*/) override {}

 protected:
  region_table regions_;
};

/// Ranks on CPUs: everything is done when its call returns.
class cpu_engine final : public mapped_engine {
 public:
  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "local", .atomics = true};
  }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    memory::copy_for_kernels(regions_.at(to), from, bytes);
    c.done(c, status::ok);
    return true;
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    memory::copy_for_kernels(to, regions_.at(from), bytes);
    c.done(c, status::ok);
    return true;
  }
  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    const std::uint64_t before = update({op, width, regions_.at(at), operand, comparand, nullptr});
    if (old != nullptr) *old = before;
    c.done(c, status::ok);
    return true;
  }
  bool flush(completion& c) override {
    c.done(c, status::ok);
    return true;
  }
  bool progress() override { return false; }
};

/// Ranks on a GPU: copies and kernels of one thread on a stream of the engine's own, and what the
/// host can do itself. All in one order: the host's part waits for the copies before it.
class gpu_engine final : public mapped_engine {
 public:
  explicit gpu_engine(device_ref d) : device_(d), stream_(d), words_(d, room, memory_kind::pinned) {
    for (std::size_t i = 0; i < room; ++i) free_words_.push_back(words_.data() + i);
  }

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "local", .gpu_memory = true, .atomics = true};
  }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    const bool by_host = regions_.on_host(to) && regions_.on_host(from, bytes);
    return copy(by_host, regions_.at(to), from, bytes, c);
  }
  bool put_small(const place& to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    return copy(regions_.on_host(to), regions_.at(to), from, bytes, c);
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    const bool by_host = regions_.on_host(from) && regions_.on_host(to, bytes);
    return copy(by_host, to, regions_.at(from), bytes, c);
  }

  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    word_update u{op, width, regions_.at(at), operand, comparand, nullptr};
    if (regions_.on_host(at)) {
      return in_order(c, [u, old] {
        const std::uint64_t before = update(u);
        if (old != nullptr) *old = before;
      });
    }
    if (waiting_.size() >= room || free_words_.empty()) return false;
    u.old = free_words_.back();
    free_words_.pop_back();
    return on_stream(
        c, [&] { launch_update(stream_, u); },
        [this, word = u.old, old] {
          if (old != nullptr) *old = *word;
          free_words_.push_back(word);
        });
  }

  bool flush(completion& c) override {
    return in_order(c, [] {});
  }

  bool progress() override {
    bool moved = false;
    while (!waiting_.empty() && is_done(waiting_.front())) {
      waited w = std::move(waiting_.front());
      waiting_.pop_front();
      if (w.mark) free_marks_.push_back(std::move(w.mark));
      w.then();
      w.c->done(*w.c, broken_ ? status::aborted : status::ok);
      moved = true;
    }
    return moved;
  }

 private:
  static constexpr std::size_t room = 256;
  struct waited {
    std::unique_ptr<event> mark;  ///< null: nothing but what comes before it
    completion* c;
    std::function<void()> then;
  };

  bool is_done(const waited& w) noexcept {
    try {
      return !w.mark || broken_ || w.mark->ready();
    } catch (const error&) {
      broken_ = true;  // a kernel faulted: nothing on this GPU ends well any more
      return true;
    }
  }

  bool copy(bool by_host, std::byte* to, const std::byte* from, std::size_t bytes, completion& c) {
    if (by_host) return in_order(c, [=] { memory::copy_for_kernels(to, from, bytes); });
    if (waiting_.size() >= room) return false;
    return on_stream(
        c, [&] { stream_.copy(to, from, bytes); }, [] {});
  }

  /// The host does it, after what is on the stream.
  template <class F>
  bool in_order(completion& c, F&& f) {
    if (waiting_.empty()) {
      f();
      c.done(c, status::ok);
      return true;
    }
    if (waiting_.size() >= room) return false;
    waiting_.push_back({nullptr, &c, std::forward<F>(f)});
    return true;
  }

  template <class F>
  bool on_stream(completion& c, F&& start, std::function<void()> then) {
    status outcome = status::ok;
    if (free_marks_.empty()) free_marks_.push_back(std::make_unique<event>(device_));
    try {
      start();
      stream_.record(*free_marks_.back());
    } catch (const error&) {
      outcome = status::invalid;  // an address that is nobody's: CUDA says so and goes on
    }
    if (outcome != status::ok) {
      then();
      c.done(c, outcome);
      return true;
    }
    waiting_.push_back({std::move(free_marks_.back()), &c, std::move(then)});
    free_marks_.pop_back();
    return true;
  }

  device_ref device_;
  stream stream_;
  buffer<std::uint64_t> words_;
  std::vector<std::uint64_t*> free_words_;
  std::vector<std::unique_ptr<event>> free_marks_;
  std::deque<waited> waiting_;
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<engine> make_engine(device_ref d, const engine_setup& /*s*/) {
  if (d.kind() == device_kind::cuda) return std::make_unique<gpu_engine>(d);
  return std::make_unique<cpu_engine>();
}

}  // namespace crosswarp::local
