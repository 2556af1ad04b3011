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
#include <cstring>

#include "engine_mpi.hpp"

namespace crosswarp::mpi {
namespace {

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

}  // namespace

// ---- what the proxy asks for

bool engine_mpi::put(const place& to, const std::byte* from, std::size_t bytes, completion& c) {
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
bool engine_mpi::put_small(const place& to, const std::byte* from, std::size_t bytes,
                           completion& c) {
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
          outcome_of(MPI_Put(source.data(), n, MPI_BYTE, to.pe, static_cast<MPI_Aint>(to.offset), n,
                             MPI_BYTE, regions_[to.region].window));
    }
  }
  c.done(c, outcome);
  return true;
}

bool engine_mpi::get(const place& from, std::byte* to, std::size_t bytes, completion& c) {
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

bool engine_mpi::atomic(amo what, int width, const place& at, std::uint64_t operand,
                        std::uint64_t comparand, std::uint64_t* old, completion& c) {
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
bool engine_mpi::fence() {
  ++fences_;
  return true;
}

bool engine_mpi::flush(completion& c) {
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

bool engine_mpi::barrier(completion& c) {
  return start_together(c, [&](pending& op) {
    return watch(op, [&](MPI_Request* r) { return MPI_Ibarrier(kernels_, r); });
  });
}

bool engine_mpi::broadcast(int root, std::byte* to, const std::byte* from, std::size_t bytes,
                           completion& c) {
  return start_together(c, [&](pending& op) {
    if (root == setup_.rank) std::memmove(to, from, bytes);
    return in_parts(bytes, part_bytes, [&](std::size_t at, int n) {
      return watch(
          op, [&](MPI_Request* r) { return MPI_Ibcast(to + at, n, MPI_BYTE, root, kernels_, r); });
    });
  });
}

bool engine_mpi::reduce(reduction how, element type, std::byte* to, const std::byte* from,
                        std::size_t count, completion& c) {
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

bool engine_mpi::progress() {
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

void engine_mpi::lose(int pe) {
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

// ---- inside MPI

status engine_mpi::prepare(peer& p, int pe) {
  const status s = p.since < fences_ ? flush_rank(pe) : status::ok;
  if (p.dirty.empty() && p.atomics == 0) p.since = fences_;
  return s;
}

void engine_mpi::touch(peer& p, const place& at) {
  if (std::find(p.dirty.begin(), p.dirty.end(), at.region) == p.dirty.end()) {
    p.dirty.push_back(at.region);
  }
  p.held_back = at;
}

void engine_mpi::end_small_puts() {
  for (int pe = 0; pe < setup_.size; ++pe) {
    for (const std::uint16_t id : peers_[static_cast<std::size_t>(pe)].dirty) {
      MPI_Win_flush_local(pe, regions_[id].window);
    }
  }
  small_used_ = 0;
}

status engine_mpi::flush_rank(int pe) {
  peer& p = peers_[static_cast<std::size_t>(pe)];
  status worst = status::ok;
  for (const std::uint16_t id : p.dirty) {
    set_worse(worst, outcome_of(MPI_Win_flush(pe, regions_[id].window)));
  }
  p.dirty.clear();
  p.held_back.reset();
  return worst;
}

void engine_mpi::push_out() {
  for (peer& p : peers_) {
    if (!p.held_back || full()) continue;
    const place at = *std::exchange(p.held_back, std::nullopt);
    pending& op = take(nobody_, at.pe);
    // A failure is that of the operations before, and theirs to tell.
    (void)watch(op, [&](MPI_Request* r) {
      return MPI_Rget(&op.answer, 1, MPI_BYTE, at.pe, static_cast<MPI_Aint>(at.offset), 1, MPI_BYTE,
                      regions_[at.region].window, r);
    });
    one_done(op);
  }
}

}  // namespace crosswarp::mpi

extern "C" {
__attribute__((
    visibility("default"))) extern const crosswarp::proxy_impl::engine_module crosswarp_engine;
const crosswarp::proxy_impl::engine_module crosswarp_engine = {
    {CROSSWARP_VERSION}, [](const crosswarp::proxy_impl::engine_setup& s) {
      return std::unique_ptr<crosswarp::proxy_impl::engine>(
          std::make_unique<crosswarp::mpi::engine_mpi>(s));
    }};
}
