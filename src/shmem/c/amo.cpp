// Atomics.
#include <type_traits>

#include "call.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;
using device::amo;

namespace {

template <class T>
void update(const call& c, amo op, T* dest, std::type_identity_t<T> value) {
  c.check_memory(dest);
  c.check(c.on.atomic(me, op, dest, value, c.pe));
}

template <class T>
T fetch_old(const call& c, amo op, const T* dest, std::type_identity_t<T> value = {},
            std::type_identity_t<T> comparand = {}) {
  c.check_memory(dest);
  T old{};
  c.check(c.on.atomic_fetch(me, op, const_cast<T*>(dest), value, comparand, c.pe, old));
  return old;
}

template <class T>
void fetch_later(const call& c, amo op, T* old, const T* dest, std::type_identity_t<T> value = {},
                 std::type_identity_t<T> comparand = {}) {
  c.check_memory(dest);
  c.check(c.on.atomic_fetch_nbi(me, op, old, const_cast<T*>(dest), value, comparand, c.pe));
}

}  // namespace

#define EXTENDED(N, T)                                                                             \
  CW_SHMEM_CTX(T, N##_atomic_fetch, (fetch_old(c, amo::fetch, source)), const T* source, int pe)   \
  CW_SHMEM_CTX(void, N##_atomic_set, (update(c, amo::set, dest, value)), T* dest, T value, int pe) \
  CW_SHMEM_CTX(T, N##_atomic_swap, (fetch_old(c, amo::swap, dest, value)), T* dest, T value,       \
               int pe)                                                                             \
  CW_SHMEM_CTX(void, N##_atomic_fetch_nbi, (fetch_later(c, amo::fetch, fetch, source)), T* fetch,  \
               const T* source, int pe)                                                            \
  CW_SHMEM_CTX(void, N##_atomic_swap_nbi, (fetch_later(c, amo::swap, fetch, dest, value)),         \
               T* fetch, T* dest, T value, int pe)                                                 \
  CW_SHMEM(T, N##_fetch, const T* source, int pe) {                                                \
    return pshmem_##N##_atomic_fetch(source, pe);                                                  \
  }                                                                                                \
  CW_SHMEM(void, N##_set, T* dest, T value, int pe) {                                              \
    pshmem_##N##_atomic_set(dest, value, pe);                                                      \
  }                                                                                                \
  CW_SHMEM(T, N##_swap, T* dest, T value, int pe) {                                                \
    return pshmem_##N##_atomic_swap(dest, value, pe);                                              \
  }
_SHMEM_EXTENDED_AMO_TYPES(EXTENDED)

#define STANDARD(N, T)                                                                             \
  CW_SHMEM_CTX(T, N##_atomic_compare_swap, (fetch_old(c, amo::compare_swap, dest, value, cond)),   \
               T* dest, T cond, T value, int pe)                                                   \
  CW_SHMEM_CTX(void, N##_atomic_inc, (update(c, amo::add, dest, 1)), T* dest, int pe)              \
  CW_SHMEM_CTX(T, N##_atomic_fetch_inc, (fetch_old(c, amo::add, dest, 1)), T* dest, int pe)        \
  CW_SHMEM_CTX(void, N##_atomic_add, (update(c, amo::add, dest, value)), T* dest, T value, int pe) \
  CW_SHMEM_CTX(T, N##_atomic_fetch_add, (fetch_old(c, amo::add, dest, value)), T* dest, T value,   \
               int pe)                                                                             \
  CW_SHMEM_CTX(void, N##_atomic_compare_swap_nbi,                                                  \
               (fetch_later(c, amo::compare_swap, fetch, dest, value, cond)), T* fetch, T* dest,   \
               T cond, T value, int pe)                                                            \
  CW_SHMEM_CTX(void, N##_atomic_fetch_inc_nbi, (fetch_later(c, amo::add, fetch, dest, 1)),         \
               T* fetch, T* dest, int pe)                                                          \
  CW_SHMEM_CTX(void, N##_atomic_fetch_add_nbi, (fetch_later(c, amo::add, fetch, dest, value)),     \
               T* fetch, T* dest, T value, int pe)                                                 \
  CW_SHMEM(T, N##_cswap, T* dest, T cond, T value, int pe) {                                       \
    return pshmem_##N##_atomic_compare_swap(dest, cond, value, pe);                                \
  }                                                                                                \
  CW_SHMEM(void, N##_inc, T* dest, int pe) {                                                       \
    pshmem_##N##_atomic_inc(dest, pe);                                                             \
  }                                                                                                \
  CW_SHMEM(T, N##_finc, T* dest, int pe) {                                                         \
    return pshmem_##N##_atomic_fetch_inc(dest, pe);                                                \
  }                                                                                                \
  CW_SHMEM(void, N##_add, T* dest, T value, int pe) {                                              \
    pshmem_##N##_atomic_add(dest, value, pe);                                                      \
  }                                                                                                \
  CW_SHMEM(T, N##_fadd, T* dest, T value, int pe) {                                                \
    return pshmem_##N##_atomic_fetch_add(dest, value, pe);                                         \
  }
_SHMEM_AMO_TYPES(STANDARD)

#define BITWISE_OP(N, T, OP)                                                                     \
  CW_SHMEM_CTX(void, N##_atomic_##OP, (update(c, amo::bit_##OP, dest, value)), T* dest, T value, \
               int pe)                                                                           \
  CW_SHMEM_CTX(T, N##_atomic_fetch_##OP, (fetch_old(c, amo::bit_##OP, dest, value)), T* dest,    \
               T value, int pe)                                                                  \
  CW_SHMEM_CTX(void, N##_atomic_fetch_##OP##_nbi,                                                \
               (fetch_later(c, amo::bit_##OP, fetch, dest, value)), T* fetch, T* dest, T value,  \
               int pe)
#define BITWISE(N, T) BITWISE_OP(N, T, and) BITWISE_OP(N, T, or) BITWISE_OP(N, T, xor)
_SHMEM_BITWISE_AMO_TYPES(BITWISE)

CW_SHMEM(long, swap, long* dest, long value, int pe) {
  return pshmem_long_atomic_swap(dest, value, pe);
}
