// The engine of MPI within: what it keeps of operations, of ranks and of their memory. mpi.cpp says
// what MPI asks of it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "library.hpp"
#include "native.hpp"
#include "proxy/load.hpp"

namespace crosswarp::mpi {

using namespace proxy_impl;

/// MPI counts with an int; 1 GiB is far from its end.
inline constexpr std::size_t part_bytes = std::size_t{1} << 30U;
inline constexpr std::size_t requests_at_once = 256;
/// How long ranks wait for each other where all of them have just met.
inline constexpr auto patience = std::chrono::seconds(10);
inline constexpr int everybody = -1;

/// What a small put carries, until a flush has seen to it that MPI reads it no more.
using small_source = std::array<std::byte, 16>;
inline constexpr std::size_t small_at_once = 1024;

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
inline constexpr int request_tag = 0;  // answers have their own, from 1
inline constexpr int served_at_once = 64;

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

class engine_mpi final : public engine {
 public:
  explicit engine_mpi(const engine_setup& s);
  ~engine_mpi() override;
  engine_mpi(const engine_mpi&) = delete;
  engine_mpi& operator=(const engine_mpi&) = delete;

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "mpi", .atomics = true, .collectives = true, .target_progress = true};
  }

  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override;
  void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> /*offers*/) override;
  void remove_region(std::uint16_t id) noexcept override;
  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override;
  bool put_small(const place& to, const std::byte* from, std::size_t bytes, completion& c) override;
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override;
  bool atomic(amo what, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override;
  bool fence() override;
  bool flush(completion& c) override;
  bool barrier(completion& c) override;
  bool broadcast(int root, std::byte* to, const std::byte* from, std::size_t bytes,
                 completion& c) override;
  bool reduce(reduction how, element type, std::byte* to, const std::byte* from, std::size_t count,
              completion& c) override;
  bool progress() override;
  void lose(int pe) override;

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

  struct card {
    int size;
    int rank;
    std::uint32_t world;  ///< rank 0's count of worlds
  };

  // ---- joining and leaving

  /// Makes communicators in which ranks are numbered as in the world.
  void join();
  [[nodiscard]] std::vector<card> exchange_cards(const card& my) const;
  /// By rank of the world: its rank in MPI_COMM_WORLD. All ranks come to the same conclusion.
  static std::vector<int> order_of(const std::vector<card>& all);
  void make_communicators(const std::vector<int>& order, int tag);
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
  bool assemble();
  /// Collective. Where ranks are missing the window stays: it cannot be freed without them.
  void free_window(MPI_Win& w) noexcept;
  /// The others have been heard last in free_window(): what is under way comes to its end.
  void send_last_answers();

  // ---- starting; inside MPI where a name of it is used

  [[nodiscard]] bool full() const noexcept {
    return requests_.size() - abandoned_requests_ >= requests_at_once;
  }

  /// There was a fence, and an atomic operation from before it has not been answered yet.
  [[nodiscard]] bool fenced_off(const peer& p) const noexcept {
    return p.since < fences_ && p.atomics > 0;
  }

  /// Before an operation to that rank: a fence from before is kept.
  status prepare(peer& p, int pe);
  /// An operation of MPI on that place: a flush will be needed.
  static void touch(peer& p, const place& at);
  /// Their sources may be used again. What went wrong, the next flush tells.
  void end_small_puts();

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

  pending& take(completion& c, int pe);
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
  status flush_rank(int pe);
  /// Has MPI send what it may have collected; waits for nobody.
  void push_out();

  // ---- atomic operations that others ask of this rank

  /// True when there were some.
  bool serve();
  [[nodiscard]] atomic_answer answer_to(const atomic_request& asked) const;

  // ---- ending

  void test_requests();
  void one_done(pending& op);
  /// An atomic operation needs no more waiting for.
  void atomic_over(const pending& op);
  /// Tells issuers, outside of MPI. True when there was one.
  bool tell();
  bool end_flushes();
  void abandon(pending& op);

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

}  // namespace crosswarp::mpi
