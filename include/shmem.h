/* OpenSHMEM 1.5 for C and C++, with these of 1.6: ibput and ibget, scans, signal_add and
 * signal_set, pe_quiet, query_initialized, team_ptr.
 *
 * Compile and link with crosswarp-cc or crosswarp-c++, start with `crosswarp run -n N`. Every
 * shmem_X is a weak alias of pshmem_X, so that a tool may put itself between. */
/* Declarations by macros have no semicolons that it could hold on to. */
/* clang-format off */
#ifndef SHMEM_H
#define SHMEM_H

#include <stddef.h>
#include <stdint.h>

/* ---- constants */

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 5
#define SHMEM_MAX_NAME_LEN 64
#define SHMEM_VENDOR_STRING "Crosswarp"

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

#define SHMEM_CMP_EQ 0
#define SHMEM_CMP_NE 1
#define SHMEM_CMP_GT 2
#define SHMEM_CMP_GE 3
#define SHMEM_CMP_LT 4
#define SHMEM_CMP_LE 5

#define SHMEM_SIGNAL_SET 1
#define SHMEM_SIGNAL_ADD 2

#define SHMEM_CTX_SERIALIZED (1L << 0)
#define SHMEM_CTX_PRIVATE (1L << 1)
#define SHMEM_CTX_NOSTORE (1L << 2)

#define SHMEM_TEAM_NUM_CONTEXTS (1L << 0)

#define SHMEM_MALLOC_ATOMICS_REMOTE (1L << 0)
#define SHMEM_MALLOC_SIGNAL_REMOTE (1L << 1)

/* Active-set collectives keep nothing in pSync and pWrk. */
#define SHMEM_SYNC_VALUE 0L
#define SHMEM_SYNC_SIZE 1
#define SHMEM_BARRIER_SYNC_SIZE 1
#define SHMEM_BCAST_SYNC_SIZE 1
#define SHMEM_REDUCE_SYNC_SIZE 1
#define SHMEM_COLLECT_SYNC_SIZE 1
#define SHMEM_ALLTOALL_SYNC_SIZE 1
#define SHMEM_ALLTOALLS_SYNC_SIZE 1
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated names. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_GE SHMEM_CMP_GE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_SYNC_SIZE SHMEM_SYNC_SIZE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_ALLTOALL_SYNC_SIZE SHMEM_ALLTOALL_SYNC_SIZE
#define _SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_ALLTOALLS_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE

#ifdef __cplusplus
extern "C" {
#endif

/* ---- handles: constants, so that they may initialise static variables of C */

typedef struct shmem_ctx_object* shmem_ctx_t;
typedef struct shmem_team_object* shmem_team_t;
typedef struct {
  int num_contexts;
} shmem_team_config_t;

#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)
#define SHMEM_TEAM_INVALID ((shmem_team_t)0)
#define SHMEM_TEAM_WORLD ((shmem_team_t)1)
#define SHMEM_TEAM_SHARED ((shmem_team_t)2)

__extension__ typedef float __complex__ _shmem_complexf;
__extension__ typedef double __complex__ _shmem_complexd;

/* ---- types, as names of functions have them */

#define _SHMEM_AMO_TYPES(X)                                                                    \
  X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned int)                       \
  X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int32, int32_t) X(int64, int64_t) \
  X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t) X(ptrdiff, ptrdiff_t)
#define _SHMEM_EXTENDED_AMO_TYPES(X) _SHMEM_AMO_TYPES(X) X(float, float) X(double, double)
#define _SHMEM_BITWISE_AMO_TYPES(X)                                              \
  X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) \
  X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)
#define _SHMEM_SYNC_TYPES(X) _SHMEM_AMO_TYPES(X) X(short, short) X(ushort, unsigned short)
#define _SHMEM_RMA_TYPES(X)                                                                   \
  _SHMEM_EXTENDED_AMO_TYPES(X) X(longdouble, long double) X(char, char) X(schar, signed char) \
  X(short, short) X(uchar, unsigned char) X(ushort, unsigned short) X(int8, int8_t)           \
  X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t)
#define _SHMEM_BITWISE_TYPES(X)                                                        \
  X(uchar, unsigned char) X(short, short) X(ushort, unsigned short) X(int, int)        \
  X(uint, unsigned int) X(long, long) X(ulong, unsigned long) X(longlong, long long)   \
  X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) \
  X(int64, int64_t) X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t)          \
  X(uint64, uint64_t) X(size, size_t)
#define _SHMEM_COMPLEX_TYPES(X) X(complexf, _shmem_complexf) X(complexd, _shmem_complexd)
#define _SHMEM_TO_ALL_INTS(X) X(short, short) X(int, int) X(long, long) X(longlong, long long)
#define _SHMEM_TO_ALL_FLOATS(X) X(float, float) X(double, double) X(longdouble, long double)
#define _SHMEM_SIZES(X) X(8) X(16) X(32) X(64) X(128)

#define _SHMEM_FN(R, NAME, ...) \
  R shmem_##NAME(__VA_ARGS__);  \
  R pshmem_##NAME(__VA_ARGS__);
#define _SHMEM_CTX_FN(R, NAME, ...) \
  _SHMEM_FN(R, NAME, __VA_ARGS__)   \
  _SHMEM_FN(R, ctx_##NAME, shmem_ctx_t ctx, __VA_ARGS__)
/* Names of old that do not begin with shmem_. */
#define _SHMEM_OLD_FN(R, NAME, ...) \
  R NAME(__VA_ARGS__);              \
  R p##NAME(__VA_ARGS__);

#pragma GCC visibility push(default)

/* ---- setup, queries, memory */

_SHMEM_FN(void, init, void)
_SHMEM_FN(int, init_thread, int requested, int* provided)
_SHMEM_FN(void, query_thread, int* provided)
_SHMEM_FN(void, query_initialized, int* initialized)
_SHMEM_FN(void, finalize, void)
_SHMEM_FN(__attribute__((noreturn)) void, global_exit, int status)
_SHMEM_FN(int, my_pe, void)
_SHMEM_FN(int, n_pes, void)
_SHMEM_FN(int, pe_accessible, int pe)
_SHMEM_FN(int, addr_accessible, const void* addr, int pe)
_SHMEM_FN(void*, ptr, const void* dest, int pe)
_SHMEM_FN(void, info_get_version, int* major, int* minor)
_SHMEM_FN(void, info_get_name, char* name)
_SHMEM_FN(void, pcontrol, int level, ...)

_SHMEM_FN(void*, malloc, size_t size)
_SHMEM_FN(void*, calloc, size_t count, size_t size)
_SHMEM_FN(void*, align, size_t alignment, size_t size)
_SHMEM_FN(void*, realloc, void* ptr, size_t size)
_SHMEM_FN(void*, malloc_with_hints, size_t size, long hints)
_SHMEM_FN(void, free, void* ptr)

_SHMEM_OLD_FN(void, start_pes, int npes)
_SHMEM_OLD_FN(int, _my_pe, void)
_SHMEM_OLD_FN(int, _num_pes, void)
_SHMEM_OLD_FN(void*, shmalloc, size_t size)
_SHMEM_OLD_FN(void*, shmemalign, size_t alignment, size_t size)
_SHMEM_OLD_FN(void*, shrealloc, void* ptr, size_t size)
_SHMEM_OLD_FN(void, shfree, void* ptr)

/* ---- teams and contexts */

_SHMEM_FN(int, team_my_pe, shmem_team_t team)
_SHMEM_FN(int, team_n_pes, shmem_team_t team)
_SHMEM_FN(int, team_get_config, shmem_team_t team, long config_mask, shmem_team_config_t* config)
_SHMEM_FN(int, team_translate_pe, shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
_SHMEM_FN(int, team_split_strided, shmem_team_t parent_team, int start, int stride, int size,
          const shmem_team_config_t* config, long config_mask, shmem_team_t* new_team)
_SHMEM_FN(int, team_split_2d, shmem_team_t parent_team, int xrange,
          const shmem_team_config_t* xaxis_config, long xaxis_mask, shmem_team_t* xaxis_team,
          const shmem_team_config_t* yaxis_config, long yaxis_mask, shmem_team_t* yaxis_team)
_SHMEM_FN(void, team_destroy, shmem_team_t team)
_SHMEM_FN(void*, team_ptr, shmem_team_t team, const void* dest, int pe)
_SHMEM_FN(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t* ctx)
_SHMEM_FN(int, ctx_create, long options, shmem_ctx_t* ctx)
_SHMEM_FN(void, ctx_destroy, shmem_ctx_t ctx)
_SHMEM_FN(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t* team)

/* ---- put and get */

#define _SHMEM_X(N, T)                                                                             \
  _SHMEM_CTX_FN(void, N##_put, T* dest, const T* source, size_t nelems, int pe)                    \
  _SHMEM_CTX_FN(void, N##_get, T* dest, const T* source, size_t nelems, int pe)                    \
  _SHMEM_CTX_FN(void, N##_put_nbi, T* dest, const T* source, size_t nelems, int pe)                \
  _SHMEM_CTX_FN(void, N##_get_nbi, T* dest, const T* source, size_t nelems, int pe)                \
  _SHMEM_CTX_FN(void, N##_p, T* dest, T value, int pe)                                             \
  _SHMEM_CTX_FN(T, N##_g, const T* source, int pe)                                                 \
  _SHMEM_CTX_FN(void, N##_iput, T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst,            \
                size_t nelems, int pe)                                                             \
  _SHMEM_CTX_FN(void, N##_iget, T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst,            \
                size_t nelems, int pe)                                                             \
  _SHMEM_CTX_FN(void, N##_ibput, T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst,           \
                size_t bsize, size_t nblocks, int pe)                                              \
  _SHMEM_CTX_FN(void, N##_ibget, T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst,           \
                size_t bsize, size_t nblocks, int pe)                                              \
  _SHMEM_CTX_FN(void, N##_put_signal, T* dest, const T* source, size_t nelems, uint64_t* sig_addr, \
                uint64_t signal, int sig_op, int pe)                                               \
  _SHMEM_CTX_FN(void, N##_put_signal_nbi, T* dest, const T* source, size_t nelems,                 \
                uint64_t* sig_addr, uint64_t signal, int sig_op, int pe)
_SHMEM_RMA_TYPES(_SHMEM_X)
#undef _SHMEM_X

#define _SHMEM_X(S)                                                                        \
  _SHMEM_CTX_FN(void, put##S, void* dest, const void* source, size_t nelems, int pe)       \
  _SHMEM_CTX_FN(void, get##S, void* dest, const void* source, size_t nelems, int pe)       \
  _SHMEM_CTX_FN(void, put##S##_nbi, void* dest, const void* source, size_t nelems, int pe) \
  _SHMEM_CTX_FN(void, get##S##_nbi, void* dest, const void* source, size_t nelems, int pe) \
  _SHMEM_CTX_FN(void, put##S##_signal, void* dest, const void* source, size_t nelems,      \
                uint64_t* sig_addr, uint64_t signal, int sig_op, int pe)                   \
  _SHMEM_CTX_FN(void, put##S##_signal_nbi, void* dest, const void* source, size_t nelems,  \
                uint64_t* sig_addr, uint64_t signal, int sig_op, int pe)
_SHMEM_SIZES(_SHMEM_X)
_SHMEM_X(mem)
#undef _SHMEM_X

#define _SHMEM_X(S)                                                                           \
  _SHMEM_CTX_FN(void, iput##S, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst,  \
                size_t nelems, int pe)                                                        \
  _SHMEM_CTX_FN(void, iget##S, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst,  \
                size_t nelems, int pe)                                                        \
  _SHMEM_CTX_FN(void, ibput##S, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, \
                size_t bsize, size_t nblocks, int pe)                                         \
  _SHMEM_CTX_FN(void, ibget##S, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, \
                size_t bsize, size_t nblocks, int pe)
_SHMEM_SIZES(_SHMEM_X)
#undef _SHMEM_X

/* ---- signals */

_SHMEM_FN(uint64_t, signal_fetch, const uint64_t* sig_addr)
_SHMEM_FN(uint64_t, signal_wait_until, uint64_t* sig_addr, int cmp, uint64_t cmp_value)
_SHMEM_CTX_FN(void, signal_add, uint64_t* sig_addr, uint64_t signal, int pe)
_SHMEM_CTX_FN(void, signal_set, uint64_t* sig_addr, uint64_t signal, int pe)

/* ---- atomics, and their names of old */

#define _SHMEM_X(N, T)                                                         \
  _SHMEM_CTX_FN(T, N##_atomic_fetch, const T* source, int pe)                  \
  _SHMEM_CTX_FN(void, N##_atomic_set, T* dest, T value, int pe)                \
  _SHMEM_CTX_FN(T, N##_atomic_swap, T* dest, T value, int pe)                  \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_nbi, T* fetch, const T* source, int pe) \
  _SHMEM_CTX_FN(void, N##_atomic_swap_nbi, T* fetch, T* dest, T value, int pe) \
  _SHMEM_FN(T, N##_fetch, const T* source, int pe)                             \
  _SHMEM_FN(void, N##_set, T* dest, T value, int pe)                           \
  _SHMEM_FN(T, N##_swap, T* dest, T value, int pe)
_SHMEM_EXTENDED_AMO_TYPES(_SHMEM_X)
#undef _SHMEM_X

#define _SHMEM_X(N, T)                                                                         \
  _SHMEM_CTX_FN(T, N##_atomic_compare_swap, T* dest, T cond, T value, int pe)                  \
  _SHMEM_CTX_FN(void, N##_atomic_inc, T* dest, int pe)                                         \
  _SHMEM_CTX_FN(T, N##_atomic_fetch_inc, T* dest, int pe)                                      \
  _SHMEM_CTX_FN(void, N##_atomic_add, T* dest, T value, int pe)                                \
  _SHMEM_CTX_FN(T, N##_atomic_fetch_add, T* dest, T value, int pe)                             \
  _SHMEM_CTX_FN(void, N##_atomic_compare_swap_nbi, T* fetch, T* dest, T cond, T value, int pe) \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_inc_nbi, T* fetch, T* dest, int pe)                     \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_add_nbi, T* fetch, T* dest, T value, int pe)            \
  _SHMEM_FN(T, N##_cswap, T* dest, T cond, T value, int pe)                                    \
  _SHMEM_FN(void, N##_inc, T* dest, int pe)                                                    \
  _SHMEM_FN(T, N##_finc, T* dest, int pe)                                                      \
  _SHMEM_FN(void, N##_add, T* dest, T value, int pe)                                           \
  _SHMEM_FN(T, N##_fadd, T* dest, T value, int pe)
_SHMEM_AMO_TYPES(_SHMEM_X)
#undef _SHMEM_X

#define _SHMEM_X(N, T)                                                              \
  _SHMEM_CTX_FN(void, N##_atomic_and, T* dest, T value, int pe)                     \
  _SHMEM_CTX_FN(T, N##_atomic_fetch_and, T* dest, T value, int pe)                  \
  _SHMEM_CTX_FN(void, N##_atomic_or, T* dest, T value, int pe)                      \
  _SHMEM_CTX_FN(T, N##_atomic_fetch_or, T* dest, T value, int pe)                   \
  _SHMEM_CTX_FN(void, N##_atomic_xor, T* dest, T value, int pe)                     \
  _SHMEM_CTX_FN(T, N##_atomic_fetch_xor, T* dest, T value, int pe)                  \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_and_nbi, T* fetch, T* dest, T value, int pe) \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_or_nbi, T* fetch, T* dest, T value, int pe)  \
  _SHMEM_CTX_FN(void, N##_atomic_fetch_xor_nbi, T* fetch, T* dest, T value, int pe)
_SHMEM_BITWISE_AMO_TYPES(_SHMEM_X)
#undef _SHMEM_X

/* ---- waiting for one's own memory */

#define _SHMEM_X(N, T)                                                                            \
  _SHMEM_FN(void, N##_wait_until, T* ivar, int cmp, T cmp_value)                                  \
  _SHMEM_FN(void, N##_wait_until_all, T* ivars, size_t nelems, const int* status, int cmp,        \
            T cmp_value)                                                                          \
  _SHMEM_FN(size_t, N##_wait_until_any, T* ivars, size_t nelems, const int* status, int cmp,      \
            T cmp_value)                                                                          \
  _SHMEM_FN(size_t, N##_wait_until_some, T* ivars, size_t nelems, size_t* indices,                \
            const int* status, int cmp, T cmp_value)                                              \
  _SHMEM_FN(void, N##_wait_until_all_vector, T* ivars, size_t nelems, const int* status, int cmp, \
            T* cmp_values)                                                                        \
  _SHMEM_FN(size_t, N##_wait_until_any_vector, T* ivars, size_t nelems, const int* status,        \
            int cmp, T* cmp_values)                                                               \
  _SHMEM_FN(size_t, N##_wait_until_some_vector, T* ivars, size_t nelems, size_t* indices,         \
            const int* status, int cmp, T* cmp_values)                                            \
  _SHMEM_FN(int, N##_test, T* ivar, int cmp, T cmp_value)                                         \
  _SHMEM_FN(int, N##_test_all, T* ivars, size_t nelems, const int* status, int cmp, T cmp_value)  \
  _SHMEM_FN(size_t, N##_test_any, T* ivars, size_t nelems, const int* status, int cmp,            \
            T cmp_value)                                                                          \
  _SHMEM_FN(size_t, N##_test_some, T* ivars, size_t nelems, size_t* indices, const int* status,   \
            int cmp, T cmp_value)                                                                 \
  _SHMEM_FN(int, N##_test_all_vector, T* ivars, size_t nelems, const int* status, int cmp,        \
            T* cmp_values)                                                                        \
  _SHMEM_FN(size_t, N##_test_any_vector, T* ivars, size_t nelems, const int* status, int cmp,     \
            T* cmp_values)                                                                        \
  _SHMEM_FN(size_t, N##_test_some_vector, T* ivars, size_t nelems, size_t* indices,               \
            const int* status, int cmp, T* cmp_values)
_SHMEM_SYNC_TYPES(_SHMEM_X)
#undef _SHMEM_X

#define _SHMEM_X(N, T) _SHMEM_FN(void, N##_wait, T* ivar, T cmp_value)
_SHMEM_TO_ALL_INTS(_SHMEM_X)
#undef _SHMEM_X
_SHMEM_FN(void, wait, long* ivar, long cmp_value)
/* For programs from before these names were generic. */
_SHMEM_FN(void, wait_until, long* ivar, int cmp, long cmp_value)
_SHMEM_FN(long, swap, long* dest, long value, int pe)

/* ---- order, locks */

_SHMEM_FN(void, fence, void)
_SHMEM_FN(void, quiet, void)
_SHMEM_FN(void, ctx_fence, shmem_ctx_t ctx)
_SHMEM_FN(void, ctx_quiet, shmem_ctx_t ctx)
_SHMEM_CTX_FN(void, pe_quiet, const int* target_pes, size_t npes)

_SHMEM_FN(void, set_lock, long* lock)
_SHMEM_FN(void, clear_lock, long* lock)
_SHMEM_FN(int, test_lock, long* lock)

_SHMEM_FN(void, set_cache_inv, void)
_SHMEM_FN(void, set_cache_line_inv, void* dest)
_SHMEM_FN(void, clear_cache_inv, void)
_SHMEM_FN(void, clear_cache_line_inv, void* dest)
_SHMEM_FN(void, udcflush, void)
_SHMEM_FN(void, udcflush_line, void* dest)

/* ---- collectives of teams */

_SHMEM_FN(void, barrier_all, void)
_SHMEM_FN(void, sync_all, void)
_SHMEM_FN(int, team_sync, shmem_team_t team)

#define _SHMEM_X(N, T)                                                                      \
  _SHMEM_FN(int, N##_broadcast, shmem_team_t team, T* dest, const T* source, size_t nelems, \
            int PE_root)                                                                    \
  _SHMEM_FN(int, N##_collect, shmem_team_t team, T* dest, const T* source, size_t nelems)   \
  _SHMEM_FN(int, N##_fcollect, shmem_team_t team, T* dest, const T* source, size_t nelems)  \
  _SHMEM_FN(int, N##_alltoall, shmem_team_t team, T* dest, const T* source, size_t nelems)  \
  _SHMEM_FN(int, N##_alltoalls, shmem_team_t team, T* dest, const T* source, ptrdiff_t dst, \
            ptrdiff_t sst, size_t nelems)
_SHMEM_RMA_TYPES(_SHMEM_X)
#undef _SHMEM_X
_SHMEM_FN(int, broadcastmem, shmem_team_t team, void* dest, const void* source, size_t nelems,
          int PE_root)
_SHMEM_FN(int, collectmem, shmem_team_t team, void* dest, const void* source, size_t nelems)
_SHMEM_FN(int, fcollectmem, shmem_team_t team, void* dest, const void* source, size_t nelems)
_SHMEM_FN(int, alltoallmem, shmem_team_t team, void* dest, const void* source, size_t nelems)
_SHMEM_FN(int, alltoallsmem, shmem_team_t team, void* dest, const void* source, ptrdiff_t dst,
          ptrdiff_t sst, size_t nelems)

#define _SHMEM_REDUCE_FN(N, T, OP) \
  _SHMEM_FN(int, N##_##OP, shmem_team_t team, T* dest, const T* source, size_t nelems)
#define _SHMEM_X(N, T)               \
  _SHMEM_REDUCE_FN(N, T, and_reduce) \
  _SHMEM_REDUCE_FN(N, T, or_reduce)  \
  _SHMEM_REDUCE_FN(N, T, xor_reduce)
_SHMEM_BITWISE_TYPES(_SHMEM_X)
#undef _SHMEM_X
#define _SHMEM_X(N, T) _SHMEM_REDUCE_FN(N, T, max_reduce) _SHMEM_REDUCE_FN(N, T, min_reduce)
_SHMEM_RMA_TYPES(_SHMEM_X)
#undef _SHMEM_X
#define _SHMEM_X(N, T)                \
  _SHMEM_REDUCE_FN(N, T, sum_reduce)  \
  _SHMEM_REDUCE_FN(N, T, prod_reduce) \
  _SHMEM_REDUCE_FN(N, T, sum_inscan)  \
  _SHMEM_REDUCE_FN(N, T, sum_exscan)
_SHMEM_RMA_TYPES(_SHMEM_X)
_SHMEM_COMPLEX_TYPES(_SHMEM_X)
#undef _SHMEM_X
#undef _SHMEM_REDUCE_FN

/* ---- collectives of active sets: deprecated */

#define _SHMEM_SET int PE_start, int logPE_stride, int PE_size
_SHMEM_FN(void, barrier, _SHMEM_SET, long* pSync)
_SHMEM_FN(void, sync, _SHMEM_SET, long* pSync)
#define _SHMEM_X(S)                                                                           \
  _SHMEM_FN(void, broadcast##S, void* dest, const void* source, size_t nelems, int PE_root,   \
            _SHMEM_SET, long* pSync)                                                          \
  _SHMEM_FN(void, collect##S, void* dest, const void* source, size_t nelems, _SHMEM_SET,      \
            long* pSync)                                                                      \
  _SHMEM_FN(void, fcollect##S, void* dest, const void* source, size_t nelems, _SHMEM_SET,     \
            long* pSync)                                                                      \
  _SHMEM_FN(void, alltoall##S, void* dest, const void* source, size_t nelems, _SHMEM_SET,     \
            long* pSync)                                                                      \
  _SHMEM_FN(void, alltoalls##S, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, \
            size_t nelems, _SHMEM_SET, long* pSync)
_SHMEM_X(32)
_SHMEM_X(64)
#undef _SHMEM_X

#define _SHMEM_TO_ALL_FN(N, T, OP)                                                               \
  _SHMEM_FN(void, N##_##OP##_to_all, T* dest, const T* source, int nreduce, _SHMEM_SET, T* pWrk, \
            long* pSync)
#define _SHMEM_X(N, T) \
  _SHMEM_TO_ALL_FN(N, T, and) _SHMEM_TO_ALL_FN(N, T, or) _SHMEM_TO_ALL_FN(N, T, xor)
_SHMEM_TO_ALL_INTS(_SHMEM_X)
#undef _SHMEM_X
#define _SHMEM_X(N, T) _SHMEM_TO_ALL_FN(N, T, max) _SHMEM_TO_ALL_FN(N, T, min)
_SHMEM_TO_ALL_INTS(_SHMEM_X)
_SHMEM_TO_ALL_FLOATS(_SHMEM_X)
#undef _SHMEM_X
#define _SHMEM_X(N, T) _SHMEM_TO_ALL_FN(N, T, sum) _SHMEM_TO_ALL_FN(N, T, prod)
_SHMEM_TO_ALL_INTS(_SHMEM_X)
_SHMEM_TO_ALL_FLOATS(_SHMEM_X)
_SHMEM_COMPLEX_TYPES(_SHMEM_X)
#undef _SHMEM_X
#undef _SHMEM_TO_ALL_FN

#pragma GCC visibility pop

#ifndef _SHMEM_KEEP_TABLES
#undef _SHMEM_SET
#undef _SHMEM_FN
#undef _SHMEM_CTX_FN
#undef _SHMEM_OLD_FN
#undef _SHMEM_AMO_TYPES
#undef _SHMEM_EXTENDED_AMO_TYPES
#undef _SHMEM_BITWISE_AMO_TYPES
#undef _SHMEM_SYNC_TYPES
#undef _SHMEM_RMA_TYPES
#undef _SHMEM_BITWISE_TYPES
#undef _SHMEM_COMPLEX_TYPES
#undef _SHMEM_TO_ALL_INTS
#undef _SHMEM_TO_ALL_FLOATS
#undef _SHMEM_SIZES
#endif

#ifdef __cplusplus
}
#endif

/* ---- generic names of C11
 *
 * The first argument chooses the function; a context before it is told by its type. Tables hold
 * each type of the language once, so int32_t and int are one entry. */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

/* Chosen for a type that the operation does not have; takes no arguments, so a call is an error. */
void _shmem_has_no_such_type(void);

#define _SHMEM_G(T, F) T*: F, const T*: F
#define _SHMEM_G_BITWISE_AMO(A, B)                                                   \
  _SHMEM_G(unsigned int, A##uint##B), _SHMEM_G(unsigned long, A##ulong##B),          \
      _SHMEM_G(unsigned long long, A##ulonglong##B), _SHMEM_G(int32_t, A##int32##B), \
      _SHMEM_G(int64_t, A##int64##B)
#define _SHMEM_G_AMO(A, B)                                                                   \
  _SHMEM_G(int, A##int##B), _SHMEM_G(long, A##long##B), _SHMEM_G(long long, A##longlong##B), \
      _SHMEM_G(unsigned int, A##uint##B), _SHMEM_G(unsigned long, A##ulong##B),              \
      _SHMEM_G(unsigned long long, A##ulonglong##B)
#define _SHMEM_G_EXTENDED_AMO(A, B) \
  _SHMEM_G_AMO(A, B), _SHMEM_G(float, A##float##B), _SHMEM_G(double, A##double##B)
#define _SHMEM_G_SYNC(A, B) \
  _SHMEM_G_AMO(A, B), _SHMEM_G(short, A##short##B), _SHMEM_G(unsigned short, A##ushort##B)
#define _SHMEM_G_BITWISE(A, B) \
  _SHMEM_G_SYNC(A, B), _SHMEM_G(unsigned char, A##uchar##B), _SHMEM_G(int8_t, A##int8##B)
#define _SHMEM_G_RMA(A, B)                                                           \
  _SHMEM_G_SYNC(A, B), _SHMEM_G(float, A##float##B), _SHMEM_G(double, A##double##B), \
      _SHMEM_G(long double, A##longdouble##B), _SHMEM_G(char, A##char##B),           \
      _SHMEM_G(signed char, A##schar##B), _SHMEM_G(unsigned char, A##uchar##B)
#define _SHMEM_G_SUM(A, B)                                       \
  _SHMEM_G_RMA(A, B), _SHMEM_G(_shmem_complexf, A##complexf##B), \
      _SHMEM_G(_shmem_complexd, A##complexd##B)

#define _SHMEM_1ST(A, ...) (A)
#define _SHMEM_2ND(A, B, ...) (B)

#define _SHMEM_GENERIC(TABLE, OP, ...) \
  _Generic(_SHMEM_1ST(__VA_ARGS__, 0), TABLE(shmem_, OP))(__VA_ARGS__)
#define _SHMEM_CTX_GENERIC(TABLE, OP, ...)                                          \
  _Generic(_SHMEM_1ST(__VA_ARGS__, 0),                                              \
           shmem_ctx_t: _Generic(_SHMEM_2ND(__VA_ARGS__, 0), TABLE(shmem_ctx_, OP), \
                                 default: _shmem_has_no_such_type),                 \
           TABLE(shmem_, OP))(__VA_ARGS__)
#define _SHMEM_TEAM_GENERIC(TABLE, OP, ...) \
  _Generic(_SHMEM_2ND(__VA_ARGS__, 0), TABLE(shmem_, OP))(__VA_ARGS__)

#define shmem_put(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _put, __VA_ARGS__)
#define shmem_get(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _get, __VA_ARGS__)
#define shmem_put_nbi(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _put_nbi, __VA_ARGS__)
#define shmem_get_nbi(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _get_nbi, __VA_ARGS__)
#define shmem_p(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _p, __VA_ARGS__)
#define shmem_g(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _g, __VA_ARGS__)
#define shmem_iput(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _iput, __VA_ARGS__)
#define shmem_iget(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _iget, __VA_ARGS__)
#define shmem_ibput(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _ibput, __VA_ARGS__)
#define shmem_ibget(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _ibget, __VA_ARGS__)
#define shmem_put_signal(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...) _SHMEM_CTX_GENERIC(_SHMEM_G_RMA, _put_signal_nbi, __VA_ARGS__)

#define _SHMEM_SIGNAL(OP, ...)                                             \
  _Generic(_SHMEM_1ST(__VA_ARGS__, 0), shmem_ctx_t: shmem_ctx_signal_##OP, \
           default: shmem_signal_##OP)(__VA_ARGS__)
#define shmem_signal_add(...) _SHMEM_SIGNAL(add, __VA_ARGS__)
#define shmem_signal_set(...) _SHMEM_SIGNAL(set, __VA_ARGS__)

#define _SHMEM_ATOMIC(TABLE, OP, ...) _SHMEM_CTX_GENERIC(TABLE, _atomic_##OP, __VA_ARGS__)
#define shmem_atomic_fetch(...) _SHMEM_ATOMIC(_SHMEM_G_EXTENDED_AMO, fetch, __VA_ARGS__)
#define shmem_atomic_set(...) _SHMEM_ATOMIC(_SHMEM_G_EXTENDED_AMO, set, __VA_ARGS__)
#define shmem_atomic_swap(...) _SHMEM_ATOMIC(_SHMEM_G_EXTENDED_AMO, swap, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...) _SHMEM_ATOMIC(_SHMEM_G_EXTENDED_AMO, fetch_nbi, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...) _SHMEM_ATOMIC(_SHMEM_G_EXTENDED_AMO, swap_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, compare_swap, __VA_ARGS__)
#define shmem_atomic_inc(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, inc, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, fetch_inc, __VA_ARGS__)
#define shmem_atomic_add(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, add, __VA_ARGS__)
#define shmem_atomic_fetch_add(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, fetch_add, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...) \
  _SHMEM_ATOMIC(_SHMEM_G_AMO, compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...) _SHMEM_ATOMIC(_SHMEM_G_AMO, fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_and(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, and, __VA_ARGS__)
#define shmem_atomic_or(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, or, __VA_ARGS__)
#define shmem_atomic_xor(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, xor, __VA_ARGS__)
#define shmem_atomic_fetch_and(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_and, __VA_ARGS__)
#define shmem_atomic_fetch_or(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_or, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...) _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_xor, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...) \
  _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...) \
  _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...) \
  _SHMEM_ATOMIC(_SHMEM_G_BITWISE_AMO, fetch_xor_nbi, __VA_ARGS__)

#define shmem_fetch(...) _SHMEM_GENERIC(_SHMEM_G_EXTENDED_AMO, _fetch, __VA_ARGS__)
#define shmem_set(...) _SHMEM_GENERIC(_SHMEM_G_EXTENDED_AMO, _set, __VA_ARGS__)
#define shmem_swap(...) _SHMEM_GENERIC(_SHMEM_G_EXTENDED_AMO, _swap, __VA_ARGS__)
#define shmem_cswap(...) _SHMEM_GENERIC(_SHMEM_G_AMO, _cswap, __VA_ARGS__)
#define shmem_inc(...) _SHMEM_GENERIC(_SHMEM_G_AMO, _inc, __VA_ARGS__)
#define shmem_finc(...) _SHMEM_GENERIC(_SHMEM_G_AMO, _finc, __VA_ARGS__)
#define shmem_add(...) _SHMEM_GENERIC(_SHMEM_G_AMO, _add, __VA_ARGS__)
#define shmem_fadd(...) _SHMEM_GENERIC(_SHMEM_G_AMO, _fadd, __VA_ARGS__)

#define shmem_wait_until(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until, __VA_ARGS__)
#define shmem_wait_until_all(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_all, __VA_ARGS__)
#define shmem_wait_until_any(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_any, __VA_ARGS__)
#define shmem_wait_until_some(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_some, __VA_ARGS__)
#define shmem_wait_until_all_vector(...) \
  _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_all_vector, __VA_ARGS__)
#define shmem_wait_until_any_vector(...) \
  _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_any_vector, __VA_ARGS__)
#define shmem_wait_until_some_vector(...) \
  _SHMEM_GENERIC(_SHMEM_G_SYNC, _wait_until_some_vector, __VA_ARGS__)
#define shmem_test(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test, __VA_ARGS__)
#define shmem_test_all(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_all, __VA_ARGS__)
#define shmem_test_any(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_any, __VA_ARGS__)
#define shmem_test_some(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_some, __VA_ARGS__)
#define shmem_test_all_vector(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_all_vector, __VA_ARGS__)
#define shmem_test_any_vector(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_any_vector, __VA_ARGS__)
#define shmem_test_some_vector(...) _SHMEM_GENERIC(_SHMEM_G_SYNC, _test_some_vector, __VA_ARGS__)

#define shmem_broadcast(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _broadcast, __VA_ARGS__)
#define shmem_collect(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _collect, __VA_ARGS__)
#define shmem_fcollect(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _fcollect, __VA_ARGS__)
#define shmem_alltoall(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _alltoall, __VA_ARGS__)
#define shmem_alltoalls(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _alltoalls, __VA_ARGS__)
#define shmem_and_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_BITWISE, _and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_BITWISE, _or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_BITWISE, _xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_RMA, _min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_SUM, _sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_SUM, _prod_reduce, __VA_ARGS__)
#define shmem_sum_inscan(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_SUM, _sum_inscan, __VA_ARGS__)
#define shmem_sum_exscan(...) _SHMEM_TEAM_GENERIC(_SHMEM_G_SUM, _sum_exscan, __VA_ARGS__)

#define shmem_sync(...)                                               \
  _Generic(_SHMEM_1ST(__VA_ARGS__, 0), shmem_team_t: shmem_team_sync, \
           default: shmem_sync)(__VA_ARGS__)

#endif

#endif
