// How a request travels: the origin copies its data on a stream into a bounce buffer of its own,
// puts that into a slot at the target, puts the request beside it, and then, after a fence, the
// request's number, which the target's proxy looks for. The target copies on its stream, puts what
// was asked for back into a slot at the origin, and after a fence its count of finished requests.
// A stream keeps the order of its work, so requests of a rank take effect in their order and a
// fence has nothing to do.
#include "staged.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "crosswarp/buffer.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/stream.hpp"
#include "transports/local/atomic_kernel.hpp"

namespace crosswarp::proxy_impl {
namespace {

constexpr std::size_t depth = 4;  // requests of a rank to another that are under way at once
constexpr std::size_t piece_bytes = 128 * 1024;
constexpr std::size_t inline_bytes = 16;
constexpr std::size_t jobs_at_once = 256;

enum class request_kind : std::uint8_t { put, put_inline, get, atomic };

struct request {
  request_kind kind = request_kind::put;
  amo op = amo::fetch;
  std::uint8_t width = 8;
  bool wants_value = false;
  std::uint16_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t operand = 0;
  std::uint64_t comparand = 0;
  std::byte data[inline_bytes] = {};
};

/// A request as it lies at its target; `number` comes last.
struct alignas(128) request_line {
  request what;
  std::uint64_t number;
};
struct alignas(128) count_line {
  std::uint64_t finished;
};

/// What a rank holds for one other: written by that one.
struct mailbox {
  request_line asked[depth];
  std::byte payload[depth][piece_bytes];
  count_line answered;
  std::uint64_t value[depth];
  std::byte landing[depth][piece_bytes];
};

/// What a rank needs itself for one other.
struct own_memory {
  request asking[depth];
  std::byte bounce[depth][piece_bytes];     // of data that goes out with requests
  std::byte answering[depth][piece_bytes];  // of data that goes out with answers
  std::uint64_t result[depth];              // of atomic operations that were asked here
};

template <class T>
std::uint64_t load_shared(const T& word) noexcept {
  // Written by an engine or by another rank's. pairs with its fence before the number or count
  return std::atomic_ref<std::uint64_t>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

class staged_engine final : public engine {
 public:
  staged_engine(std::unique_ptr<engine> inner, device_ref d, const engine_setup& s)
      : device_(d),
        setup_(s),
        inner_(std::move(inner)),
        name_(std::string(inner_->can().name) + ", staged"),
        stream_(d),
        boxes_(d, static_cast<std::size_t>(s.size), memory_kind::pinned),
        own_(d, static_cast<std::size_t>(s.size), memory_kind::pinned) {
    for (int pe = 0; pe < s.size; ++pe) peers_.push_back(std::make_unique<peer>(*this, pe));
    const region_info mine{reinterpret_cast<std::byte*>(boxes_.data()),
                           boxes_.size() * sizeof(mailbox), true,
                           std::vector<std::byte*>(static_cast<std::size_t>(s.size))};
    inner_->install_region(0, s.meet(inner_->offer_region(0, mine)));
    s.meet({});  // everybody's is there
  }

  ~staged_engine() override {
    try {
      stream_.sync();
    } catch (const error&) {
      // The device is broken; who uses it has been told.
    }
    inner_.reset();  // before what it may still write
  }
  staged_engine(const staged_engine&) = delete;
  staged_engine& operator=(const staged_engine&) = delete;

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = name_.c_str(), .gpu_memory = true, .atomics = true, .target_progress = true};
  }

  /// Only this rank touches its regions: there is nothing to tell to others.
  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override {
    if (regions_.size() <= id) regions_.resize(id + std::size_t{1});
    regions_[id] = mine.base;
    return {};
  }
  void install_region(std::uint16_t /*id*/, std::vector<std::vector<std::byte>> /*all*/) override {}
  void remove_region(std::uint16_t id) noexcept override { regions_[id] = nullptr; }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    job j{.c = &c, .at = to, .local = const_cast<std::byte*>(from), .bytes = bytes};
    j.what.kind = request_kind::put;
    return accept(j);
  }
  bool put_small(const place& to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    job j{.c = &c, .at = to, .bytes = bytes};
    j.what.kind = request_kind::put_inline;
    std::memcpy(j.what.data, from, bytes);
    return accept(j);
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    job j{.c = &c, .at = from, .local = to, .bytes = bytes};
    j.what.kind = request_kind::get;
    return accept(j);
  }
  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    job j{.c = &c, .at = at, .bytes = static_cast<std::size_t>(width), .old = old};
    j.what.kind = request_kind::atomic;
    j.what.op = op;
    j.what.width = static_cast<std::uint8_t>(width);
    j.what.wants_value = old != nullptr;
    j.what.operand = operand;
    j.what.comparand = comparand;
    return accept(j);
  }
  bool fence() override { return true; }

  bool flush(completion& c) override {
    flushes_.push_back({&c, last_job_});
    end_flushes();
    return true;
  }
  bool barrier(completion& c) override { return inner_->barrier(c); }

  bool progress() override {
    bool moved = inner_->progress();
    for (const auto& p : peers_) {
      if (p->out_of_reach()) p->lose();
    }
    for (const auto& p : peers_) moved = p->serve() || moved;
    for (const auto& p : peers_) moved = p->go_on() || moved;
    return end_flushes() || moved;
  }

  void lose(int pe) override {
    inner_->lose(pe);
    peers_[static_cast<std::size_t>(pe)]->lose();
    end_flushes();
  }

 private:
  /// An operation, until the target has finished it.
  struct job {
    completion* c = nullptr;  ///< null when it has been called
    place at{};
    std::byte* local = nullptr;
    std::size_t bytes = 0;
    std::uint64_t* old = nullptr;
    request what = {};
    std::uint64_t id = 0;
    std::size_t issued = 0;  ///< bytes for which there are requests
    bool all_issued = false;
    std::size_t unfinished = 0;  ///< requests that the target has not finished
    std::size_t uncopied = 0;    ///< requests whose data is not copied from or to its local memory

    [[nodiscard]] bool is_get() const noexcept { return what.kind == request_kind::get; }
  };
  struct waiting_flush {
    completion* c;
    std::uint64_t last_job;
  };

  /// An operation of the inner engine that somebody counts.
  struct counted : completion {
    std::size_t* open = nullptr;
    bool* failed = nullptr;
    counted() {
      done = [](completion& c, status s) {
        auto& self = static_cast<counted&>(c);
        --*self.open;
        if (s != status::ok) *self.failed = true;
      };
    }
  };

  enum class step { idle, copying, data, request, number, asked, landing };

  /// One request of this rank, from its job to the end of what it needs.
  struct asking_slot {
    explicit asking_slot(device_ref d) : copied(d) {}
    step at = step::idle;
    job* of = nullptr;
    std::uint64_t number = 0;
    std::byte* local = nullptr;
    std::size_t bytes = 0;
    event copied;
    std::size_t open = 0;  ///< operations of the inner engine
    std::array<counted, 3> parts;
  };

  enum class duty { idle, working, data, value, done };

  /// One request of another rank.
  struct serving_slot {
    explicit serving_slot(device_ref d) : worked(d) {}
    duty at = duty::idle;
    request what;
    event worked;
    std::size_t open = 0;
    std::array<counted, 2> parts;
  };

  class peer {
   public:
    peer(staged_engine& owner, int pe) : owner_(owner), pe_(pe) {
      for (std::size_t i = 0; i < depth; ++i) {
        asking_.push_back(std::make_unique<asking_slot>(owner.device_));
        serving_.push_back(std::make_unique<serving_slot>(owner.device_));
        for (counted& c : asking_[i]->parts) c = counted_by(asking_[i]->open);
        for (counted& c : serving_[i]->parts) c = counted_by(serving_[i]->open);
      }
      counting_ = counted_by(counting_open_);
    }
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;

    [[nodiscard]] bool lost() const noexcept { return lost_; }
    /// The inner engine no longer reaches it.
    [[nodiscard]] bool out_of_reach() const noexcept { return failed_ && !lost_; }
    [[nodiscard]] bool full() const noexcept { return jobs_.size() >= jobs_at_once; }
    void add(const job& j) {
      jobs_.push_back(j);
      go_on();
    }
    /// All that came up to that job is finished at the target.
    [[nodiscard]] bool has_finished(std::uint64_t id) const noexcept {
      return jobs_.empty() || jobs_.front().id > id;
    }

    // ---- what this rank asks of the other

    bool go_on() {
      bool moved = false;
      for (job& j : jobs_) {
        if (!j.all_issued && !issue(j, moved)) break;
      }
      for (std::uint64_t n = released_; n < asked_; ++n) moved = advance(slot_of(n)) || moved;
      moved = hear_answers() || moved;
      while (released_ < asked_ && release(slot_of(released_))) {
        ++released_;
        moved = true;
      }
      while (!jobs_.empty() && jobs_.front().all_issued && jobs_.front().unfinished == 0 &&
             jobs_.front().uncopied == 0) {
        jobs_.pop_front();
        moved = true;
      }
      return moved;
    }

    // ---- what the other asks of this rank

    bool serve() {
      if (lost_) return false;
      bool moved = false;
      while (begin_next()) moved = true;
      for (std::uint64_t n = finished_; n < begun_; ++n) moved = work_on(n) || moved;
      std::uint64_t finished = finished_;
      while (finished < begun_ && serving(finished).at == duty::done) {
        serving(finished++).at = duty::idle;
        moved = true;
      }
      finished_ = finished;
      return tell_count() || moved;
    }

    void lose() {
      lost_ = true;
      // The inner engine ends what it has; the slots stay until then, and are not used again.
      for (job& j : jobs_) {
        if (completion* const c = std::exchange(j.c, nullptr)) c->done(*c, status::peer_lost);
      }
      jobs_.clear();
      for (const auto& s : asking_) s->of = nullptr;
      released_ = asked_;
    }

   private:
    counted counted_by(std::size_t& open) {
      counted c;
      c.open = &open;
      c.failed = &failed_;
      return c;
    }
    asking_slot& slot_of(std::uint64_t n) { return *asking_[n % depth]; }
    serving_slot& serving(std::uint64_t n) { return *serving_[n % depth]; }
    [[nodiscard]] mailbox& box() const { return owner_.boxes_.data()[pe_]; }
    [[nodiscard]] own_memory& own() const { return owner_.own_.data()[pe_]; }
    /// A part of the mailbox that the other rank holds for this one.
    template <class T>
    [[nodiscard]] place there(const T& part_of_mine) const {
      const auto at = reinterpret_cast<const std::byte*>(&part_of_mine) -
                      reinterpret_cast<const std::byte*>(&box());
      return {pe_, 0,
              static_cast<std::uint64_t>(owner_.setup_.rank) * sizeof(mailbox) +
                  static_cast<std::uint64_t>(at)};
    }
    template <class F>
    static bool hand_over(std::size_t& open, F&& f) {
      ++open;
      if (f()) return true;
      --open;
      return false;
    }
    /// The local side of a job is done with when nothing of it is left to be copied.
    static void tell_if_local(job& j) {
      if (j.c == nullptr || !j.all_issued || j.uncopied > 0) return;
      if (j.what.wants_value && j.unfinished > 0) return;
      completion* const c = std::exchange(j.c, nullptr);
      c->done(*c, status::ok);
    }

    /// Makes requests of a job; false when there is no slot for the next.
    bool issue(job& j, bool& moved) {
      do {
        if (asked_ - released_ == depth || slot_of(asked_).open > 0) return false;
        moved = true;
        asking_slot& s = slot_of(asked_);
        s.of = &j;
        s.number = ++asked_;
        s.bytes = std::min(j.bytes - j.issued, piece_bytes);
        s.local = j.local == nullptr ? nullptr : j.local + j.issued;
        request& r = own().asking[(s.number - 1) % depth];
        r = j.what;
        r.region = j.at.region;
        r.offset = j.at.offset + j.issued;
        r.bytes = s.bytes;
        j.issued += s.bytes;
        j.all_issued = j.issued == j.bytes;
        ++j.unfinished;
        s.at = step::request;
        if (r.kind == request_kind::put) {
          ++j.uncopied;
          owner_.stream_.copy(own().bounce[(s.number - 1) % depth], s.local, s.bytes);
          owner_.stream_.record(s.copied);
          s.at = step::copying;
        } else if (j.is_get()) {
          ++j.uncopied;
        }
      } while (!j.all_issued);
      tell_if_local(j);
      return true;
    }

    /// The next steps of a request, as far as they can be made now.
    bool advance(asking_slot& s) {
      const step before = s.at;
      const std::size_t i = (s.number - 1) % depth;
      engine& inner = *owner_.inner_;
      if (s.at == step::copying && s.copied.ready()) {
        --s.of->uncopied;
        tell_if_local(*s.of);
        s.at = step::data;
      }
      if (s.at == step::data && hand_over(s.open, [&] {
            return inner.put(there(box().payload[i]), own().bounce[i], s.bytes, s.parts[0]);
          })) {
        s.at = step::request;
      }
      if (s.at == step::request && hand_over(s.open, [&] {
            return inner.put(there(box().asked[i].what),
                             reinterpret_cast<const std::byte*>(&own().asking[i]), sizeof(request),
                             s.parts[1]);
          })) {
        s.at = step::number;
      }
      if (s.at == step::number && inner.fence() && hand_over(s.open, [&] {
            return inner.put_small(there(box().asked[i].number),
                                   reinterpret_cast<const std::byte*>(&s.number), sizeof(s.number),
                                   s.parts[2]);
          })) {
        s.at = step::asked;
      }
      return s.at != before;
    }

    bool hear_answers() {
      const std::uint64_t answered = load_shared(box().answered.finished);
      bool moved = false;
      for (; answered_ < answered && answered_ < asked_; ++answered_) {
        moved = true;
        asking_slot& s = slot_of(answered_);
        const std::size_t i = answered_ % depth;
        s.at = step::idle;
        if (s.of == nullptr) continue;  // of a rank that is lost
        job& j = *s.of;
        --j.unfinished;
        if (j.old != nullptr) std::memcpy(j.old, &box().value[i], j.what.width);
        if (j.is_get()) {
          owner_.stream_.copy(s.local, box().landing[i], s.bytes);
          owner_.stream_.record(s.copied);
          s.at = step::landing;
        }
        tell_if_local(j);
      }
      return moved;
    }

    /// True when the slot of an answered request can be used again.
    bool release(asking_slot& s) {
      if (s.number > answered_) return false;
      if (s.at == step::landing) {
        if (!s.copied.ready()) return false;
        s.at = step::idle;
        --s.of->uncopied;
        tell_if_local(*s.of);
      }
      return s.at == step::idle;
    }

    /// Takes the next request, if it has come.
    bool begin_next() {
      if (begun_ - finished_ == depth) return false;
      serving_slot& s = serving(begun_);
      const std::size_t i = begun_ % depth;
      if (s.open > 0 || load_shared(box().asked[i].number) != begun_ + 1) return false;
      s.what = box().asked[i].what;
      std::byte* const at = owner_.regions_[s.what.region] + s.what.offset;
      stream& on = owner_.stream_;
      switch (s.what.kind) {
        case request_kind::put:
          on.copy(at, box().payload[i], s.what.bytes);
          break;
        case request_kind::put_inline:
          on.copy(at, box().asked[i].what.data, s.what.bytes);
          break;
        case request_kind::get:
          on.copy(own().answering[i], at, s.what.bytes);
          break;
        case request_kind::atomic:
          local::launch_update(on, {s.what.op, s.what.width, at, s.what.operand, s.what.comparand,
                                    s.what.wants_value ? &own().result[i] : nullptr});
          break;
      }
      on.record(s.worked);
      s.at = duty::working;
      ++begun_;
      return true;
    }

    bool work_on(std::uint64_t n) {
      serving_slot& s = serving(n);
      const duty before = s.at;
      const std::size_t i = n % depth;
      engine& inner = *owner_.inner_;
      if (s.at == duty::working && s.worked.ready()) {
        s.at = s.what.kind == request_kind::get ? duty::data
               : s.what.wants_value             ? duty::value
                                                : duty::done;
      }
      if (s.at == duty::data && hand_over(s.open, [&] {
            return inner.put(there(box().landing[i]), own().answering[i], s.what.bytes, s.parts[0]);
          })) {
        s.at = duty::done;
      }
      if (s.at == duty::value && hand_over(s.open, [&] {
            return inner.put_small(there(box().value[i]),
                                   reinterpret_cast<const std::byte*>(&own().result[i]),
                                   sizeof(std::uint64_t), s.parts[1]);
          })) {
        s.at = duty::done;
      }
      return s.at != before;
    }

    /// One message for all that were finished since the last.
    bool tell_count() {
      if (told_ == finished_ || counting_open_ > 0) return false;
      telling_ = finished_;
      if (!owner_.inner_->fence() || !hand_over(counting_open_, [&] {
            return owner_.inner_->put_small(there(box().answered.finished),
                                            reinterpret_cast<const std::byte*>(&telling_),
                                            sizeof(telling_), counting_);
          })) {
        return false;
      }
      told_ = telling_;
      return true;
    }

    staged_engine& owner_;
    int pe_;
    bool lost_ = false;
    bool failed_ = false;
    std::deque<job> jobs_;
    // Requests by number: released_ <= answered_ <= asked_.
    std::vector<std::unique_ptr<asking_slot>> asking_;
    std::uint64_t asked_ = 0;
    std::uint64_t answered_ = 0;
    std::uint64_t released_ = 0;
    // The other rank's: told_ <= finished_ <= begun_.
    std::vector<std::unique_ptr<serving_slot>> serving_;
    std::uint64_t begun_ = 0;
    std::uint64_t finished_ = 0;
    std::uint64_t told_ = 0;
    std::uint64_t telling_ = 0;  // while counting_open_ > 0
    std::size_t counting_open_ = 0;
    counted counting_;
  };

  bool accept(job& j) {
    peer& p = *peers_[static_cast<std::size_t>(j.at.pe)];
    if (p.lost()) {
      j.c->done(*j.c, status::peer_lost);
      return true;
    }
    if (p.full()) return false;
    j.id = ++last_job_;
    p.add(j);
    return true;
  }

  bool end_flushes() {
    bool moved = false;
    const auto ended = [&](const waiting_flush& f) {
      return std::all_of(peers_.begin(), peers_.end(),
                         [&](const auto& p) { return p->has_finished(f.last_job); });
    };
    while (!flushes_.empty() && ended(flushes_.front())) {
      completion* const c = flushes_.front().c;
      flushes_.pop_front();
      c->done(*c, status::ok);
      moved = true;
    }
    return moved;
  }

  device_ref device_;
  engine_setup setup_;
  std::unique_ptr<engine> inner_;
  std::string name_;
  stream stream_;
  buffer<mailbox> boxes_;
  buffer<own_memory> own_;
  std::vector<std::unique_ptr<peer>> peers_;
  std::vector<std::byte*> regions_;  // by id, this rank's
  std::uint64_t last_job_ = 0;
  std::deque<waiting_flush> flushes_;
};

}  // namespace

std::unique_ptr<engine> make_staged(std::unique_ptr<engine> inner, device_ref d,
                                    const engine_setup& s) {
  return std::make_unique<staged_engine>(std::move(inner), d, s);
}

}  // namespace crosswarp::proxy_impl
