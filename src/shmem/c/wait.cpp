// Waiting for one's own memory, order, locks.
#include "call.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;

namespace {

template <class T>
using words = device::shmem::words<T>;

/// `values`: one for each word, or one for all.
template <class T>
words<T> some_words(const call& c, T* ivars, size_t nelems, const int* status, int cmp,
                    const T* values, bool one) {
  return {ivars, nelems, status, comparison(c, cmp), values, one};
}

template <class T>
void wait_all(const call& c, const words<T>& w) {
  c.check(c.on.wait_until_all(me, w));
}
/// Begins after the one that was found last, so that a word that always holds does not hide others.
template <class T>
size_t test_any(const call& c, const words<T>& w) {
  thread_local size_t next = 0;
  if (w.count == 0) return c.on.none;
  const size_t start = next % w.count;
  words<T> rest = w;
  rest.at += start;
  rest.count -= start;
  if (w.skip != nullptr) rest.skip += start;
  if (!w.one) rest.values += start;
  size_t found = c.on.test_any(rest);
  if (found != c.on.none) {
    found += start;
  } else {
    rest = w;
    rest.count = start;
    found = c.on.test_any(rest);
  }
  if (found != c.on.none) next = found + 1;
  return found;
}
template <class T>
size_t wait_any(const call& c, const words<T>& w) {
  size_t index = test_any(c, w);
  if (index == c.on.none) c.check(c.on.wait_until_any(me, w, index));
  return index;
}
template <class T>
size_t wait_some(const call& c, const words<T>& w, size_t* indices) {
  size_t found = 0;
  c.check(c.on.wait_until_some(me, w, indices, found));
  return found;
}

std::uint64_t* lock_word(long* lock) {
  static_assert(sizeof(long) == sizeof(std::uint64_t));
  return reinterpret_cast<std::uint64_t*>(lock);
}

}  // namespace

#define LOCAL(R, NAME, RESULT, ...)          \
  CW_SHMEM(R, NAME, __VA_ARGS__) {           \
    const call c{everybody, "shmem_" #NAME}; \
    return RESULT;                           \
  }

#define ONE some_words(c, ivars, nelems, status, cmp, &cmp_value, true)
#define WORDS(T) T *ivars, size_t nelems
#define TYPED_WAIT(N, T)                                                                           \
  LOCAL(void, N##_wait_until, (c.check(c.on.wait_until(me, ivar, comparison(c, cmp), cmp_value))), \
        T* ivar, int cmp, T cmp_value)                                                             \
  LOCAL(int, N##_test, (c.on.test(ivar, comparison(c, cmp), cmp_value) ? 1 : 0), T* ivar, int cmp, \
        T cmp_value)                                                                               \
  LOCAL(void, N##_wait_until_all, (wait_all(c, ONE)), WORDS(T), const int* status, int cmp,        \
        T cmp_value)                                                                               \
  LOCAL(size_t, N##_wait_until_any, (wait_any(c, ONE)), WORDS(T), const int* status, int cmp,      \
        T cmp_value)                                                                               \
  LOCAL(size_t, N##_wait_until_some, (wait_some(c, ONE, indices)), WORDS(T), size_t* indices,      \
        const int* status, int cmp, T cmp_value)                                                   \
  LOCAL(int, N##_test_all, (c.on.test_all(ONE) ? 1 : 0), WORDS(T), const int* status, int cmp,     \
        T cmp_value)                                                                               \
  LOCAL(size_t, N##_test_any, (test_any(c, ONE)), WORDS(T), const int* status, int cmp,            \
        T cmp_value)                                                                               \
  LOCAL(size_t, N##_test_some, (c.on.test_some(ONE, indices)), WORDS(T), size_t* indices,          \
        const int* status, int cmp, T cmp_value)
#define EACH some_words(c, ivars, nelems, status, cmp, cmp_values, false)
#define TYPED_WAIT_VECTOR(N, T)                                                                   \
  LOCAL(void, N##_wait_until_all_vector, (wait_all(c, EACH)), WORDS(T), const int* status,        \
        int cmp, T* cmp_values)                                                                   \
  LOCAL(size_t, N##_wait_until_any_vector, (wait_any(c, EACH)), WORDS(T), const int* status,      \
        int cmp, T* cmp_values)                                                                   \
  LOCAL(size_t, N##_wait_until_some_vector, (wait_some(c, EACH, indices)), WORDS(T),              \
        size_t* indices, const int* status, int cmp, T* cmp_values)                               \
  LOCAL(int, N##_test_all_vector, (c.on.test_all(EACH) ? 1 : 0), WORDS(T), const int* status,     \
        int cmp, T* cmp_values)                                                                   \
  LOCAL(size_t, N##_test_any_vector, (test_any(c, EACH)), WORDS(T), const int* status, int cmp,   \
        T* cmp_values)                                                                            \
  LOCAL(size_t, N##_test_some_vector, (c.on.test_some(EACH, indices)), WORDS(T), size_t* indices, \
        const int* status, int cmp, T* cmp_values)
_SHMEM_SYNC_TYPES(TYPED_WAIT)
_SHMEM_SYNC_TYPES(TYPED_WAIT_VECTOR)

// Until it is something else.
#define TYPED_OLD_WAIT(N, T)                                \
  CW_SHMEM(void, N##_wait, T* ivar, T cmp_value) {          \
    pshmem_##N##_wait_until(ivar, SHMEM_CMP_NE, cmp_value); \
  }
_SHMEM_TO_ALL_INTS(TYPED_OLD_WAIT)
CW_SHMEM(void, wait, long* ivar, long cmp_value) {
  pshmem_long_wait(ivar, cmp_value);
}
CW_SHMEM(void, wait_until, long* ivar, int cmp, long cmp_value) {
  pshmem_long_wait_until(ivar, cmp, cmp_value);
}

CW_SHMEM(uint64_t, signal_fetch, const uint64_t* sig_addr) {
  return everybody.signal_fetch(sig_addr);
}
CW_SHMEM(uint64_t, signal_wait_until, uint64_t* sig_addr, int cmp, uint64_t cmp_value) {
  const call c{everybody, "shmem_signal_wait_until"};
  std::uint64_t seen = 0;
  c.check(c.on.signal_wait_until(me, sig_addr, comparison(c, cmp), cmp_value, seen));
  return seen;
}

// ---- order

CW_SHMEM(void, fence, void) {
  const call c{everybody, "shmem_fence"};
  c.check_started();
  c.check(c.on.fence(me));
}
CW_SHMEM(void, quiet, void) {
  const call c{everybody, "shmem_quiet"};
  c.check_started();
  c.check(c.on.quiet(me));
}
CW_SHMEM(void, ctx_fence, shmem_ctx_t ctx) {
  const call c{view_of(ctx), "shmem_ctx_fence"};
  c.check(c.on.fence(me));
}
CW_SHMEM(void, ctx_quiet, shmem_ctx_t ctx) {
  const call c{view_of(ctx), "shmem_ctx_quiet"};
  c.check(c.on.quiet(me));
}
CW_SHMEM(void, ctx_pe_quiet, shmem_ctx_t ctx, const int* target_pes, size_t npes) {
  for (size_t i = 0; i < npes; ++i) {
    const call c{view_of(ctx), "shmem_ctx_pe_quiet", target_pes[i]};
    c.check(c.on.pe_quiet(me, target_pes[i]));
  }
}
CW_SHMEM(void, pe_quiet, const int* target_pes, size_t npes) {
  pshmem_ctx_pe_quiet(SHMEM_CTX_DEFAULT, target_pes, npes);
}

// ---- locks

CW_SHMEM(void, set_lock, long* lock) {
  const call c{everybody, "shmem_set_lock"};
  c.check(c.on.set_lock(me, lock_word(lock)));
}
CW_SHMEM(void, clear_lock, long* lock) {
  const call c{everybody, "shmem_clear_lock"};
  c.check(c.on.clear_lock(me, lock_word(lock)));
}
CW_SHMEM(int, test_lock, long* lock) {
  const call c{everybody, "shmem_test_lock"};
  bool taken = false;
  c.check(c.on.test_lock(me, lock_word(lock), taken));
  return taken ? 0 : 1;
}

// ---- caches are coherent

CW_SHMEM(void, set_cache_inv, void) {}
CW_SHMEM(void, set_cache_line_inv, void*) {}
CW_SHMEM(void, clear_cache_inv, void) {}
CW_SHMEM(void, clear_cache_line_inv, void*) {}
CW_SHMEM(void, udcflush, void) {}
CW_SHMEM(void, udcflush_line, void*) {}
