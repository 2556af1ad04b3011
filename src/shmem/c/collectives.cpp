// Collectives that move data.
#include "collectives.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::shmem_c {
namespace {

bool moves_data(const amount& much) {
  return much.dest != nullptr || much.source != nullptr;
}

std::string describe(const amount& much) {
  if (!moves_data(much)) return "";
  std::string text =
      " of " + std::to_string(much.n) + " elements of " + std::to_string(much.size) + " bytes";
  if (much.root != amount::no_root) text += " from root " + std::to_string(much.root);
  return text;
}

/// What this PE gave that cannot be; else it is another's call that does not match.
std::string why_invalid(const device::shmem& on, const amount& much) {
  const bool rooted = much.root != amount::no_root;
  if (rooted && !on.is_accessible(much.root)) {
    return "no such root; there are " + std::to_string(on.n_pes()) + " PEs";
  }
  const std::size_t bytes = much.n * much.size;
  const auto inside = [&](const void* p, std::size_t parts) {
    const auto* const first = static_cast<const std::byte*>(p);
    return p == nullptr || bytes == 0 ||
           (on.is_symmetric(first) && on.is_symmetric(first + bytes * parts - 1));
  };
  if (!inside(much.dest, 1)) return "dest is not symmetric memory";
  if (!inside(much.source, 1)) return "source is not symmetric memory";
  if (!moves_data(much)) return "another PE called another collective";
  std::string why = "another PE called another collective, or gave another size";
  if (rooted) why += " or root";
  if (!inside(much.dest, static_cast<std::size_t>(on.n_pes()))) why += ", or dest is too short";
  return why;
}

}  // namespace

void fail(const call& c, status s, amount much) {
  c.fail(s, describe(much), why_invalid(c.on, much));
}

void meet(const char* name, purpose what_for) {
  const call c{everybody, name};
  c.check_started();
  do_collective(c, {},
                [&](const auto& v) { return v.sync(me, static_cast<std::uint8_t>(what_for)); });
}

const device::shmem& active_set(const char* name, int start, int log_stride, int size) {
  runtime& r = job_for(name);
  if (log_stride < 0 || log_stride > 30) give_up(name, "no such stride");
  const std::scoped_lock lock(r.mutex);
  const auto [it, is_new] = r.sets.try_emplace({start, log_stride, size});
  if (is_new) {
    try {
      it->second = r.shmem.active_set(start, 1 << log_stride, size);
    } catch (const error& e) {
      give_up(name, e.what());
    }
    if (it->second.my_pe() < 0) give_up(name, "this PE is not in the active set");
  }
  return it->second;
}

}  // namespace crosswarp::shmem_c

using namespace crosswarp;
using namespace crosswarp::shmem_c;
using view = device::shmem;

namespace {

/// Without data it is a meeting, and pointers may be anything.
template <class F>
auto unless_empty(size_t n, F collective) {
  return [n, collective](const view& v) { return n == 0 ? v.sync(me) : collective(v); };
}

template <class T>
auto broadcast(T* dest, const T* source, size_t n, int root) {
  return unless_empty(n, [=](const view& v) { return v.broadcast(me, dest, source, n, root); });
}
template <class T>
auto collect(T* dest, const T* source, size_t n) {
  return [=](const view& v) {
    T* const to = dest == nullptr ? static_cast<T*>(job->nowhere) : dest;
    return v.collect(me, to, source, n);
  };
}
template <class T>
auto fcollect(T* dest, const T* source, size_t n) {
  return unless_empty(n, [=](const view& v) { return v.fcollect(me, dest, source, n); });
}
template <class T>
auto alltoall(T* dest, const T* source, size_t n) {
  return unless_empty(n, [=](const view& v) { return v.alltoall(me, dest, source, n); });
}
template <class T>
auto alltoalls(T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst, size_t n) {
  return unless_empty(n, [=](const view& v) { return v.alltoalls(me, dest, source, dst, sst, n); });
}

/// As the functions of active sets have it, and unlike a team's: the root's own dest is left alone.
/// The teams' broadcast() cannot be asked for that, so this one puts and meets.
template <class T>
auto broadcast_to_others(T* dest, const T* source, size_t n, int root) {
  return [=](const view& v) {
    status s = v.team().has(root) ? status::ok : status::invalid;
    for (int pe = 0; v.my_pe() == root && pe < v.n_pes() && s == status::ok; ++pe) {
      if (pe != root && n > 0) s = v.put_nbi(me, dest, source, n, pe);
    }
    return s == status::ok ? v.barrier(me) : s;
  };
}

using unit_mem = std::byte;
using unit_32 = std::uint32_t;
using unit_64 = std::uint64_t;

}  // namespace

// ---- teams

CW_SHMEM(void, barrier_all, void) {
  const call c{everybody, "shmem_barrier_all"};
  c.check_started();
  do_collective(c, {}, [](const view& v) { return v.barrier(me); });
}
CW_SHMEM(void, sync_all, void) {
  meet("shmem_sync_all", purpose::barrier);
}
CW_SHMEM(int, team_sync, shmem_team_t team) {
  return by_team(team, "shmem_team_sync", {}, [](const view& v) { return v.sync(me); });
}

#define LENGTH(T) (amount{nelems, sizeof(T), 1, to, from})
#define WITH_ROOT(T) (amount{nelems, sizeof(T), 1, to, from, PE_root})
#define FAR_APART(T) (amount{nelems, sizeof(T), std::max(length_of(dst), length_of(sst)), to, from})

// V: the element as the declaration has it; T: as it is moved.
#define TEAM(NAME, WHAT, V, T, MUCH, ARGS, ...)                                   \
  CW_SHMEM(int, NAME, shmem_team_t team, V* dest, const V* source, __VA_ARGS__) { \
    T* const to = static_cast<T*>(dest);                                          \
    const T* const from = static_cast<const T*>(source);                          \
    return by_team(team, "shmem_" #NAME, MUCH, WHAT ARGS);                        \
  }
#define TEAM_DATA(PRE, POST, V, T)                                                        \
  TEAM(PRE##broadcast##POST, broadcast, V, T, WITH_ROOT(T), (to, from, nelems, PE_root),  \
       size_t nelems, int PE_root)                                                        \
  TEAM(PRE##collect##POST, collect, V, T, LENGTH(T), (to, from, nelems), size_t nelems)   \
  TEAM(PRE##fcollect##POST, fcollect, V, T, LENGTH(T), (to, from, nelems), size_t nelems) \
  TEAM(PRE##alltoall##POST, alltoall, V, T, LENGTH(T), (to, from, nelems), size_t nelems) \
  TEAM(PRE##alltoalls##POST, alltoalls, V, T, FAR_APART(T), (to, from, dst, sst, nelems), \
       ptrdiff_t dst, ptrdiff_t sst, size_t nelems)
#define TYPED(N, T) TEAM_DATA(N##_, , T, T)
_SHMEM_RMA_TYPES(TYPED)
TEAM_DATA(, mem, void, unit_mem)

// ---- active sets

CW_SHMEM(void, barrier, _SHMEM_SET, long*) {
  by_set("shmem_barrier", PE_start, logPE_stride, PE_size, {},
         [](const view& v) { return v.barrier(me); });
}
CW_SHMEM(void, sync, _SHMEM_SET, long*) {
  by_set("shmem_sync", PE_start, logPE_stride, PE_size, {},
         [](const view& v) { return v.sync(me); });
}

#define SET(NAME, WHAT, T, MUCH, ARGS, ...)                                              \
  CW_SHMEM(void, NAME, void* dest, const void* source, __VA_ARGS__, _SHMEM_SET, long*) { \
    T* const to = static_cast<T*>(dest);                                                 \
    const T* const from = static_cast<const T*>(source);                                 \
    by_set("shmem_" #NAME, PE_start, logPE_stride, PE_size, MUCH, WHAT ARGS);            \
  }
#define SET_DATA(S)                                                                         \
  SET(broadcast##S, broadcast_to_others, unit_##S, WITH_ROOT(unit_##S),                     \
      (to, from, nelems, PE_root), size_t nelems, int PE_root)                              \
  SET(collect##S, collect, unit_##S, LENGTH(unit_##S), (to, from, nelems), size_t nelems)   \
  SET(fcollect##S, fcollect, unit_##S, LENGTH(unit_##S), (to, from, nelems), size_t nelems) \
  SET(alltoall##S, alltoall, unit_##S, LENGTH(unit_##S), (to, from, nelems), size_t nelems) \
  SET(alltoalls##S, alltoalls, unit_##S, FAR_APART(unit_##S), (to, from, dst, sst, nelems), \
      ptrdiff_t dst, ptrdiff_t sst, size_t nelems)
SET_DATA(32)
SET_DATA(64)
