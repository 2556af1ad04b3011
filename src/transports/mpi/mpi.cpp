// The engine for jobs of mpirun: one-sided operations of MPI 3.
//
// What MPI asks of this code, and what follows from it:
//  - A flush is the only way to know that a put has arrived, and it waits. So there is one for all
//    that is under way to a rank, when somebody asks for it: at a quiet, or at the first operation
//    after a fence. While it waits, MPI serves what others want of this rank.
//  - What nobody flushes may stay here for ever: Open MPI without remote memory access collects
//    small puts until something follows that wants an answer. So a read of one byte follows them.
//  - Only what goes through MPI's windows is atomic to what does: a kernel's own atomic operations
//    on the same word are not. So atomic operations are messages, which the engine of the rank
//    whose word it is carries out as a kernel there would, and answers.
//  - A call that waits for all ranks cannot be given up. Ranks meet in calls that can be before
//    they enter one; where that fails, windows are left to the end of the process.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "library.hpp"
#include "native.hpp"
#include "proxy/load.hpp"
#include "transports/local/atomic_kernel.hpp"

namespace crosswarp::mpi {
namespace {

using namespace proxy_impl;

/// MPI counts with an int; 1 GiB is far from its end.
constexpr std::size_t part_bytes = std::size_t{1} << 30U;
constexpr std::size_t requests_at_once = 256;
/// How long ranks wait for each other where all of them have just met.
constexpr auto patience = std::chrono::seconds(10);
constexpr int everybody = -1;

void set_worse(status& s, status other) noexcept {
  if (static_cast<int>(other) > static_cast<int>(s)) s = other;
}

/// What a small put carries, until a flush has seen to it that MPI reads it no more.
using small_source = std::array<std::byte, 16>;
constexpr std::size_t small_at_once = 1024;

/// One atomic operation, to the rank whose word it is.
struct atomic_request {
  std::uint64_t offset = 0;
  std::uint64_t operand = 0;
  std::uint64_t comparand = 0;
  std::uint16_t region = 0;
  amo what = amo::fetch;
  std::uint8_t width = 8;
  int answer_tag = 0;
};
struct atomic_answer {
  std::uint64_t before = 0;
  status outcome = status::ok;
};
constexpr int request_tag = 0;  // answers have their own, from 1
constexpr int served_at_once = 64;

/// An operation under way. MPI reads and writes its messages until it is done.
struct pending {
  int tag = 0;  ///< its own, for ever
  completion* c = nullptr;
  int pe = everybody;
  int open = 0;  ///< requests, and one for the start itself
  status outcome = status::ok;
  bool abandoned = false;    ///< its rank is lost and its issuer has been told
  std::uint64_t serial = 0;  ///< of an atomic operation of this rank, from 1
  std::uint64_t* old = nullptr;
  atomic_request asked = {};
  atomic_answer answer = {};
};

bool overlap(const std::byte* a, const std::byte* b, std::size_t bytes) noexcept {
  const auto x = reinterpret_cast<std::uintptr_t>(a);
  const auto y = reinterpret_cast<std::uintptr_t>(b);
  return x < y ? y - x < bytes : x - y < bytes;
}

/// `call(offset, count)` for parts of `total`; the first failure ends it.
template <class F>
int in_parts(std::size_t total, std::size_t most, F&& call) {
  for (std::size_t at = 0; at < total; at += most) {
    const int code = call(at, static_cast<int>(std::min(most, total - at)));
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

class engine_mpi final : public engine {
 public:
  explicit engine_mpi(const engine_setup& s)
      : setup_(s),
        mpi_(library::start(s.size)),
        words_(std::make_unique<lent_to_mpi>()),
        peers_(static_cast<std::size_t>(s.size)) {
    join();
    ++mpi_.engines;
  }

  ~engine_mpi() override {
    ending_ = true;
    for (region& r : regions_) free_window(r.window);
    send_last_answers();
    if (broken_ || !requests_.empty()) {
      // MPI may still read and write them. Reachable for as long as the process lives.
      // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): nothing is left to be done without it
      static auto* const left = new std::vector<std::unique_ptr<lent_to_mpi>>;
      static std::mutex mutex;
      const std::scoped_lock lock(mutex);
      left->push_back(std::move(words_));
      mpi_.stuck = true;
    } else {
      const auto inside = mpi_.enter();
      MPI_Comm_free(&kernels_);
      MPI_Comm_free(&hosts_);
    }
    --mpi_.engines;
  }
  engine_mpi(const engine_mpi&) = delete;
  engine_mpi& operator=(const engine_mpi&) = delete;

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "mpi", .atomics = true, .collectives = true, .target_progress = true};
  }

  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override {
    if (!mine.on_host) {
      refuse(
          "a GPU's memory is out of MPI's reach; use a heap in the host's memory "
          "(CROSSWARP_HEAP_KIND=pinned)");
    }
    if (regions_.size() <= id) regions_.resize(id + std::size_t{1});
    regions_[id] = {mine.base, mine.bytes, MPI_WIN_NULL};
    return {};
  }

  /// Waits for the other ranks, inside MPI, where what they want of this rank goes on.
  void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> /*offers*/) override {
    region& r = regions_[id];
    int code = MPI_SUCCESS;
    const bool all = together([&] {
      code = MPI_Win_create(r.base, static_cast<MPI_Aint>(r.bytes), 1, MPI_INFO_NULL, hosts_,
                            &r.window);
    });
    if (!all) throw error(errc::timeout, "MPI_Win_create", "not all ranks came");
    check(code, "MPI_Win_create",
          "; where MPI has no remote memory access between the ranks, 'mpirun --mca osc ^rdma' "
          "lets it use messages");
    const auto inside = mpi_.enter();
    MPI_Win_set_errhandler(r.window, MPI_ERRORS_RETURN);
    int* model = nullptr;
    int known = 0;
    MPI_Win_get_attr(r.window, MPI_WIN_MODEL, &model, &known);
    if (known == 0 || *model != MPI_WIN_UNIFIED) {
      refuse("this MPI keeps copies of windows, which kernels would not see change");
    }
    check(MPI_Win_lock_all(MPI_MODE_NOCHECK, r.window), "MPI_Win_lock_all");
  }

  void remove_region(std::uint16_t id) noexcept override {
    free_window(regions_[id].window);
    for (peer& p : peers_) std::erase(p.dirty, id);
  }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    return start(to, c, [&](pending& op, peer& p) {
      touch(p, to);
      MPI_Win w = regions_[to.region].window;
      return in_parts(bytes, part_bytes, [&](std::size_t at, int n) {
        const auto there = static_cast<MPI_Aint>(to.offset + at);
        return watch(op, [&](MPI_Request* r) {
          return MPI_Rput(from + at, n, MPI_BYTE, to.pe, there, n, MPI_BYTE, w, r);
        });
      });
    });
  }

  /// Without a request, which takes longer than the put itself: complete at once, as the source is
  /// copied.
  bool put_small(const place& to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    peer& p = peers_[static_cast<std::size_t>(to.pe)];
    if (fenced_off(p)) return false;
    status outcome = p.lost ? status::peer_lost : status::ok;
    if (!p.lost) {
      const auto inside = mpi_.enter();
      if (small_used_ == small_at_once) end_small_puts();
      small_source& source = words_->small[small_used_++];
      std::memcpy(source.data(), from, bytes);
      outcome = prepare(p, to.pe);
      touch(p, to);
      const int n = static_cast<int>(bytes);
      if (outcome == status::ok) {
        outcome =
            outcome_of(MPI_Put(source.data(), n, MPI_BYTE, to.pe, static_cast<MPI_Aint>(to.offset),
                               n, MPI_BYTE, regions_[to.region].window));
      }
    }
    c.done(c, outcome);
    return true;
  }

  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    return start(from, c, [&](pending& op, peer& p) {
      touch(p, from);
      // It goes at once, and what MPI has collected goes before it.
      p.held_back.reset();
      MPI_Win w = regions_[from.region].window;
      return in_parts(bytes, part_bytes, [&](std::size_t at, int n) {
        const auto there = static_cast<MPI_Aint>(from.offset + at);
        return watch(op, [&](MPI_Request* r) {
          return MPI_Rget(to + at, n, MPI_BYTE, from.pe, there, n, MPI_BYTE, w, r);
        });
      });
    });
  }

  bool atomic(amo what, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    return start(at, c, [&](pending& op, peer& p) {
      op.old = old;
      op.asked = {at.offset, operand, comparand, at.region, what, static_cast<std::uint8_t>(width),
                  op.tag};
      op.serial = ++last_atomic_;
      atomics_.push_back(op.serial);
      ++p.atomics;
      int code = watch(op, [&](MPI_Request* r) {
        return MPI_Irecv(&op.answer, sizeof(op.answer), MPI_BYTE, at.pe, op.tag, hosts_, r);
      });
      if (code != MPI_SUCCESS) return code;
      code = watch(op, [&](MPI_Request* r) {
        return MPI_Isend(&op.asked, sizeof(op.asked), MPI_BYTE, at.pe, request_tag, hosts_, r);
      });
      if (code != MPI_SUCCESS) MPI_Cancel(&requests_.back());  // nobody will answer
      return code;
    });
  }

  /// Nothing yet: a rank that gets no more operations needs no flush.
  bool fence() override {
    ++fences_;
    return true;
  }

  bool flush(completion& c) override {
    status worst = status::ok;
    {
      const auto inside = mpi_.enter();
      for (int pe = 0; pe < setup_.size; ++pe) set_worse(worst, flush_rank(pe));
      small_used_ = 0;
    }
    flushes_.push_back({&c, worst, last_atomic_});
    tell();
    return true;
  }

  bool barrier(completion& c) override {
    return start_together(c, [&](pending& op) {
      return watch(op, [&](MPI_Request* r) { return MPI_Ibarrier(kernels_, r); });
    });
  }

  bool broadcast(int root, std::byte* to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    return start_together(c, [&](pending& op) {
      if (root == setup_.rank) std::memmove(to, from, bytes);
      return in_parts(bytes, part_bytes, [&](std::size_t at, int n) {
        return watch(op, [&](MPI_Request* r) {
          return MPI_Ibcast(to + at, n, MPI_BYTE, root, kernels_, r);
        });
      });
    });
  }

  bool reduce(reduction how, element type, std::byte* to, const std::byte* from, std::size_t count,
              completion& c) override {
    const element_type e = native(type);
    const bool real = type == element::f32 || type == element::f64;
    const bool apart = to == from || !overlap(to, from, count * e.bytes);
    if ((real && on_bits(how)) || !apart) {
      c.done(c, apart ? status::unsupported : status::invalid);
      return true;
    }
    return start_together(c, [&](pending& op) {
      return in_parts(count, part_bytes / e.bytes, [&](std::size_t at, int n) {
        const void* source = to == from ? MPI_IN_PLACE : from + at * e.bytes;
        return watch(op, [&](MPI_Request* r) {
          return MPI_Iallreduce(source, to + at * e.bytes, n, e.type, native(how), kernels_, r);
        });
      });
    });
  }

  bool progress() override {
    bool served = false;
    {
      const auto inside = mpi_.enter();
      // Others' operations on this rank's memory advance inside MPI's calls only.
      served = serve();
      if (!requests_.empty()) test_requests();
      push_out();
    }
    return tell() || served;
  }

  void lose(int pe) override {
    broken_ = true;
    peer& p = peers_[static_cast<std::size_t>(pe)];
    p.lost = true;
    p.dirty.clear();
    p.held_back.reset();
    const auto concerned = [&](const pending* op) { return op->pe == pe || op->pe == everybody; };
    for (pending* op : owners_) {
      if (concerned(op)) abandon(*op);
    }
    abandoned_requests_ = static_cast<std::size_t>(std::count_if(
        owners_.begin(), owners_.end(), [](const pending* op) { return op->abandoned; }));
  }

 private:
  struct lent_to_mpi {
    std::deque<struct pending> pending;
    std::array<small_source, small_at_once> small;
  };
  struct region {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    MPI_Win window = MPI_WIN_NULL;
  };
  struct peer {
    bool lost = false;
    std::vector<std::uint16_t> dirty;  ///< regions with operations since the last flush
    int atomics = 0;                   ///< under way
    std::uint64_t since = 0;           ///< fences before the first of all these
    std::optional<place> held_back;    ///< where the last went that MPI may not have sent
  };
  /// Its own part is done; it waits for atomic operations.
  struct held_flush {
    completion* c;
    status outcome;
    std::uint64_t last_atomic;  ///< before it
  };

  // ---- joining and leaving

  struct card {
    int size;
    int rank;
    std::uint32_t world;  ///< rank 0's count of worlds
  };

  /// Makes communicators in which ranks are numbered as in the world.
  void join() {
    card my{0, 0, mpi_.worlds++};
    {
      const auto inside = mpi_.enter();
      check(MPI_Comm_size(MPI_COMM_WORLD, &my.size), "MPI_Comm_size");
      check(MPI_Comm_rank(MPI_COMM_WORLD, &my.rank), "MPI_Comm_rank");
    }
    const std::vector<card> all = exchange_cards(my);
    const std::vector<int> order = order_of(all);
    constexpr std::uint32_t tags = 32767;  // what every MPI has
    const int tag = static_cast<int>(all[0].world % tags);
    // As in together(), by means that are there before MPI's are.
    std::unique_lock<std::timed_mutex> mine(mpi_.order, std::defer_lock);
    if (setup_.rank == 0) mine.lock();
    setup_.meet({});
    {
      const auto inside = mpi_.enter();
      make_communicators(order, tag);
    }
    setup_.meet({});
  }

  [[nodiscard]] std::vector<card> exchange_cards(const card& my) const {
    std::vector<std::byte> bytes(sizeof(card));
    std::memcpy(bytes.data(), &my, sizeof(my));
    const auto gathered = setup_.meet(std::move(bytes));
    std::vector<card> all;
    for (const auto& theirs : gathered) {
      card c{};
      std::memcpy(&c, theirs.data(), std::min(theirs.size(), sizeof(c)));
      all.push_back(c);
    }
    return all;
  }

  /// By rank of the world: its rank in MPI_COMM_WORLD. All ranks come to the same conclusion.
  static std::vector<int> order_of(const std::vector<card>& all) {
    const int size = static_cast<int>(all.size());
    std::vector<int> order;
    std::vector<bool> seen(all.size());
    for (const card& c : all) {
      if (c.size != size) {
        refuse("the world has " + std::to_string(size) + " ranks and MPI has " +
               std::to_string(c.size) + "; start the program with mpirun");
      }
      const auto i = static_cast<std::size_t>(c.rank);
      if (i >= seen.size() || seen[i]) {
        refuse("several ranks are one process of MPI; start the program with mpirun");
      }
      seen[i] = true;
      order.push_back(c.rank);
    }
    return order;
  }

  void make_communicators(const std::vector<int>& order, int tag) {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group mine = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, setup_.size, order.data(), &mine), "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, mine, tag, &hosts_), "MPI_Comm_create_group");
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
    MPI_Comm_set_errhandler(hosts_, MPI_ERRORS_RETURN);
    check(MPI_Comm_dup(hosts_, &kernels_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(kernels_, MPI_ERRORS_RETURN);
  }

  /// Calls `f`, which waits inside MPI for all ranks, when all ranks are about to; false when they
  /// are not. Rank 0 lets one such call at a time begin: those of several worlds come in one
  /// order everywhere, so that none waits inside MPI for a thread that waits to enter it.
  template <class F>
  bool together(F&& f) {
    std::unique_lock<std::timed_mutex> mine(mpi_.order, std::defer_lock);
    if (setup_.rank == 0 && !mine.try_lock_for(patience)) broken_ = true;
    // Twice: who gives up does so before the second, as nobody is missing any more then.
    if (!assemble() || !assemble()) return false;
    {
      const auto inside = mpi_.enter();
      f();
    }
    return assemble();
  }

  /// All ranks are here. The one wait for them that can be given up; then it is for ever, as
  /// collective calls are matched by their order.
  bool assemble() {
    if (broken_) return false;
    MPI_Request r = MPI_REQUEST_NULL;
    int done = 0;
    {
      const auto inside = mpi_.enter();
      broken_ = MPI_Ibarrier(hosts_, &r) != MPI_SUCCESS;
    }
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!broken_) {
      {
        const auto inside = mpi_.enter();
        broken_ = MPI_Test(&r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        serve();  // who is missing may wait for an answer
      }
      if (done != 0) return true;
      broken_ = broken_ || std::chrono::steady_clock::now() > end;
      std::this_thread::yield();
    }
    return false;
  }

  /// Collective. Where ranks are missing the window stays: it cannot be freed without them.
  void free_window(MPI_Win& w) noexcept {
    if (w == MPI_WIN_NULL) return;
    together([&] {
      MPI_Win_unlock_all(w);
      if (!requests_.empty()) test_requests();  // ended by that
      MPI_Win_free(&w);
    });
    w = MPI_WIN_NULL;
    tell();
  }

  /// The others have been heard last in free_window(): what is under way comes to its end.
  void send_last_answers() {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!broken_ && !requests_.empty() && std::chrono::steady_clock::now() < end) {
      const auto inside = mpi_.enter();
      test_requests();
    }
  }

  // ---- starting; inside MPI where a name of it is used

  [[nodiscard]] bool full() const noexcept {
    return requests_.size() - abandoned_requests_ >= requests_at_once;
  }

  /// There was a fence, and an atomic operation from before it has not been answered yet.
  [[nodiscard]] bool fenced_off(const peer& p) const noexcept {
    return p.since < fences_ && p.atomics > 0;
  }

  /// Before an operation to that rank: a fence from before is kept.
  status prepare(peer& p, int pe) {
    const status s = p.since < fences_ ? flush_rank(pe) : status::ok;
    if (p.dirty.empty() && p.atomics == 0) p.since = fences_;
    return s;
  }

  /// An operation of MPI on that place: a flush will be needed.
  static void touch(peer& p, const place& at) {
    if (std::find(p.dirty.begin(), p.dirty.end(), at.region) == p.dirty.end()) {
      p.dirty.push_back(at.region);
    }
    p.held_back = at;
  }

  /// Their sources may be used again. What went wrong, the next flush tells.
  void end_small_puts() {
    for (int pe = 0; pe < setup_.size; ++pe) {
      for (const std::uint16_t id : peers_[static_cast<std::size_t>(pe)].dirty) {
        MPI_Win_flush_local(pe, regions_[id].window);
      }
    }
    small_used_ = 0;
  }

  template <class F>
  bool start(const place& at, completion& c, F&& issue) {
    peer& p = peers_[static_cast<std::size_t>(at.pe)];
    if (full() || fenced_off(p)) return false;
    if (p.lost) {
      c.done(c, status::peer_lost);
      return true;
    }
    pending& op = take(c, at.pe);
    {
      const auto inside = mpi_.enter();
      op.outcome = prepare(p, at.pe);
      if (op.outcome == status::ok) op.outcome = outcome_of(issue(op, p));
    }
    one_done(op);
    tell();
    return true;
  }

  template <class F>
  bool start_together(completion& c, F&& issue) {
    if (full()) return false;
    if (broken_) {
      c.done(c, status::peer_lost);
      return true;
    }
    pending& op = take(c, everybody);
    {
      const auto inside = mpi_.enter();
      op.outcome = outcome_of(issue(op));
    }
    one_done(op);
    tell();
    return true;
  }

  pending& take(completion& c, int pe) {
    if (free_words_.empty()) {
      free_words_.push_back(&words_->pending.emplace_back());
      free_words_.back()->tag = static_cast<int>(words_->pending.size());
    }
    pending& op = *free_words_.back();
    free_words_.pop_back();
    op = {.tag = op.tag, .c = &c, .pe = pe, .open = 1};
    return op;
  }

  /// Remembers the request that `call` makes, unless it has ended already, as most small ones have.
  template <class F>
  int watch(pending& op, F&& call) {
    MPI_Request r = MPI_REQUEST_NULL;
    int ended = 0;
    int code = call(&r);
    if (code == MPI_SUCCESS) code = MPI_Test(&r, &ended, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || ended != 0) return code;
    requests_.push_back(r);
    owners_.push_back(&op);
    ++op.open;
    return code;
  }

  status flush_rank(int pe) {
    peer& p = peers_[static_cast<std::size_t>(pe)];
    status worst = status::ok;
    for (const std::uint16_t id : p.dirty) {
      set_worse(worst, outcome_of(MPI_Win_flush(pe, regions_[id].window)));
    }
    p.dirty.clear();
    p.held_back.reset();
    return worst;
  }

  /// Has MPI send what it may have collected; waits for nobody.
  void push_out() {
    for (peer& p : peers_) {
      if (!p.held_back || full()) continue;
      const place at = *std::exchange(p.held_back, std::nullopt);
      pending& op = take(nobody_, at.pe);
      // A failure is that of the operations before, and theirs to tell.
      (void)watch(op, [&](MPI_Request* r) {
        return MPI_Rget(&op.answer, 1, MPI_BYTE, at.pe, static_cast<MPI_Aint>(at.offset), 1,
                        MPI_BYTE, regions_[at.region].window, r);
      });
      one_done(op);
    }
  }

  // ---- atomic operations that others ask of this rank

  /// True when there were some.
  bool serve() {
    for (int served = 0; served < served_at_once; ++served) {
      int there = 0;
      MPI_Status from = {};
      if (MPI_Iprobe(MPI_ANY_SOURCE, request_tag, hosts_, &there, &from) != MPI_SUCCESS ||
          there == 0) {
        return served != 0;
      }
      pending& op = take(nobody_, from.MPI_SOURCE);
      if (MPI_Recv(&op.asked, sizeof(op.asked), MPI_BYTE, from.MPI_SOURCE, request_tag, hosts_,
                   MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          !peers_[static_cast<std::size_t>(op.pe)].lost) {
        op.answer = answer_to(op.asked);
        // Where it fails the rank is lost, and learns it otherwise.
        (void)watch(op, [&](MPI_Request* r) {
          return MPI_Isend(&op.answer, sizeof(op.answer), MPI_BYTE, op.pe, op.asked.answer_tag,
                           hosts_, r);
        });
      }
      one_done(op);
    }
    return true;
  }

  [[nodiscard]] atomic_answer answer_to(const atomic_request& asked) const {
    const auto& [offset, operand, comparand, id, what, width, tag] = asked;
    const bool known = id < regions_.size() && regions_[id].window != MPI_WIN_NULL &&
                       (width == 4 || width == 8) && offset % width == 0 &&
                       offset < regions_[id].bytes && width <= regions_[id].bytes - offset;
    if (!known) return {0, status::invalid};
    return {local::update({what, width, regions_[id].base + offset, operand, comparand, nullptr}),
            status::ok};
  }

  // ---- ending

  void test_requests() {
    const auto n = static_cast<int>(requests_.size());
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int ended = 0;
    const int code = MPI_Testsome(n, requests_.data(), &ended, indices_.data(), statuses_.data());
    if (ended == MPI_UNDEFINED || ended == 0) return;
    for (int i = 0; i < ended; ++i) {
      const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
      pending& op = *std::exchange(owners_[at], nullptr);
      if (code == MPI_ERR_IN_STATUS) {
        set_worse(op.outcome, outcome_of(statuses_[static_cast<std::size_t>(i)].MPI_ERROR));
      }
      if (op.abandoned) --abandoned_requests_;
      one_done(op);
    }
    std::erase(owners_, nullptr);
    std::erase(requests_, MPI_REQUEST_NULL);
  }

  void one_done(pending& op) {
    if (--op.open == 0) ended_.push_back(&op);
  }

  /// An atomic operation needs no more waiting for.
  void atomic_over(const pending& op) {
    if (op.serial == 0) return;
    --peers_[static_cast<std::size_t>(op.pe)].atomics;
    std::erase(atomics_, op.serial);
  }

  /// Tells issuers, outside of MPI. True when there was one.
  bool tell() {
    bool told = false;
    // Who is told may start the next operation.
    while (!ended_.empty()) {
      pending& op = *ended_.back();
      ended_.pop_back();
      completion* const c = op.abandoned || ending_ ? nullptr : op.c;
      if (!op.abandoned) atomic_over(op);
      if (op.serial != 0) set_worse(op.outcome, op.answer.outcome);
      const status s = op.outcome;
      if (c != nullptr && op.old != nullptr) *op.old = op.answer.before;
      free_words_.push_back(&op);
      if (c == nullptr) continue;
      c->done(*c, s);
      told = true;
    }
    return end_flushes() || told;
  }

  bool end_flushes() {
    bool told = false;
    while (!flushes_.empty() &&
           (atomics_.empty() || atomics_.front() > flushes_.front().last_atomic)) {
      const held_flush f = flushes_.front();
      flushes_.pop_front();
      if (ending_) continue;
      f.c->done(*f.c, f.outcome);
      told = true;
    }
    return told;
  }

  void abandon(pending& op) {
    if (std::exchange(op.abandoned, true)) return;
    atomic_over(op);
    op.c->done(*op.c, status::peer_lost);
  }

  engine_setup setup_;
  library& mpi_;
  MPI_Comm hosts_ = MPI_COMM_NULL;    // what the ranks' hosts do in the same order
  MPI_Comm kernels_ = MPI_COMM_NULL;  // collective commands
  /// Ranks are missing: no call that waits for all of them can be made any more.
  bool broken_ = false;
  bool ending_ = false;  // nobody waits for completions any more
  std::unique_ptr<lent_to_mpi> words_;
  std::size_t small_used_ = 0;
  std::vector<pending*> free_words_;
  std::vector<peer> peers_;
  std::uint64_t fences_ = 0;
  std::vector<region> regions_;
  std::vector<MPI_Request> requests_;
  std::vector<pending*> owners_;  // of the requests
  std::size_t abandoned_requests_ = 0;
  std::vector<pending*> ended_;  // to be told
  std::uint64_t last_atomic_ = 0;
  std::vector<std::uint64_t> atomics_;  // of this rank, under way: their serials, the oldest first
  std::deque<held_flush> flushes_;
  completion nobody_{[](completion& /*c*/, status /*s*/) {}};
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace
}  // namespace crosswarp::mpi

extern "C" {
__attribute__((
    visibility("default"))) extern const crosswarp::proxy_impl::engine_module crosswarp_engine;
const crosswarp::proxy_impl::engine_module crosswarp_engine = {
    CROSSWARP_VERSION, [](const crosswarp::proxy_impl::engine_setup& s) {
      return std::unique_ptr<crosswarp::proxy_impl::engine>(
          std::make_unique<crosswarp::mpi::engine_mpi>(s));
    }};
}
