#include "transports/local/local.hpp"

#include <cstring>
#include <deque>
#include <optional>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
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
  /// Some region of this rank that the host may read and write holds the address.
  [[nodiscard]] bool on_host(const std::byte* p) const {
    for (const region_info& r : regions_) {
      if (r.on_host && r.base != nullptr && p >= r.base && p < r.base + r.bytes) return true;
    }
    return false;
  }

 private:
  std::vector<region_info> regions_;
};

/// Ranks on CPUs: everything is done when its call returns.
class cpu_engine final : public engine {
 public:
  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "local", .atomics = true};
  }
  void add_region(std::uint16_t id, const region_info& mine) override { regions_.add(id, mine); }
  void remove_region(std::uint16_t id) noexcept override { regions_.remove(id); }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    std::memcpy(regions_.at(to), from, bytes);
    c.done(c, status::ok);
    return true;
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    std::memcpy(to, regions_.at(from), bytes);
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
  bool fence() override { return true; }
  bool flush(completion& c) override {
    c.done(c, status::ok);
    return true;
  }
  bool progress() override { return false; }
  void lose(int /*pe*/) override {}

 private:
  region_table regions_;
};

/// Ranks on a GPU: copies and kernels of one thread on a stream of the engine's own.
class gpu_engine final : public engine {
 public:
  explicit gpu_engine(device_ref d) : device_(d), stream_(d), words_(d, room, memory_kind::pinned) {
    for (std::size_t i = 0; i < room; ++i) free_words_.push_back(words_.data() + i);
  }

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "local", .gpu_memory = true, .atomics = true};
  }
  void add_region(std::uint16_t id, const region_info& mine) override { regions_.add(id, mine); }
  void remove_region(std::uint16_t id) noexcept override { regions_.remove(id); }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    // From the host's memory to the host's memory, or bytes that came with the command.
    if (regions_.on_host(to) && (bytes <= 16 || regions_.on_host(from))) {
      std::memcpy(regions_.at(to), from, bytes);
      c.done(c, status::ok);
      return true;
    }
    return copy(regions_.at(to), from, bytes, c);
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    if (regions_.on_host(from) && regions_.on_host(to)) {
      std::memcpy(to, regions_.at(from), bytes);
      c.done(c, status::ok);
      return true;
    }
    return copy(to, regions_.at(from), bytes, c);
  }

  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    if (regions_.on_host(at)) {
      const std::uint64_t before =
          update({op, width, regions_.at(at), operand, comparand, nullptr});
      if (old != nullptr) *old = before;
      c.done(c, status::ok);
      return true;
    }
    if (free_words_.empty()) return false;
    std::uint64_t* const word = free_words_.back();
    free_words_.pop_back();
    return enqueue(c, word, old, [&] {
      launch_update(stream_, {op, width, regions_.at(at), operand, comparand, word});
    });
  }

  /// What the host writes itself must wait for copies; what the stream does is in order anyway.
  bool fence() override { return waiting_.empty(); }
  bool flush(completion& c) override {
    if (waiting_.empty()) {
      c.done(c, status::ok);
      return true;
    }
    return enqueue(c, nullptr, nullptr, [] {});
  }

  bool progress() override {
    bool moved = false;
    while (!waiting_.empty() && waiting_.front().mark->ready()) {
      waited w = std::move(waiting_.front());
      waiting_.pop_front();
      if (w.word != nullptr) {
        if (w.old != nullptr) *w.old = *w.word;
        free_words_.push_back(w.word);
      }
      free_marks_.push_back(std::move(w.mark));
      w.c->done(*w.c, status::ok);
      moved = true;
    }
    return moved;
  }
  void lose(int /*pe*/) override {}

 private:
  static constexpr std::size_t room = 256;
  struct waited {
    std::unique_ptr<event> mark;
    completion* c;
    std::uint64_t* word;
    std::uint64_t* old;
  };

  bool copy(std::byte* to, const std::byte* from, std::size_t bytes, completion& c) {
    return enqueue(c, nullptr, nullptr, [&] { stream_.copy(to, from, bytes); });
  }

  template <class F>
  bool enqueue(completion& c, std::uint64_t* word, std::uint64_t* old, F&& f) {
    if (waiting_.size() >= room) return false;
    if (free_marks_.empty()) free_marks_.push_back(std::make_unique<event>(device_));
    try {
      f();
      stream_.record(*free_marks_.back());
    } catch (const error&) {
      // An address that is nobody's: CUDA says so and goes on.
      if (word != nullptr) free_words_.push_back(word);
      c.done(c, status::invalid);
      return true;
    }
    waiting_.push_back({std::move(free_marks_.back()), &c, word, old});
    free_marks_.pop_back();
    return true;
  }

  device_ref device_;
  stream stream_;
  region_table regions_;
  buffer<std::uint64_t> words_;
  std::vector<std::uint64_t*> free_words_;
  std::vector<std::unique_ptr<event>> free_marks_;
  std::deque<waited> waiting_;
};

}  // namespace

std::unique_ptr<engine> make_engine(device_ref d, const engine_setup& /*s*/) {
  if (d.kind() == device_kind::cuda) return std::make_unique<gpu_engine>(d);
  return std::make_unique<cpu_engine>();
}

}  // namespace crosswarp::local
