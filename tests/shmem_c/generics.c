/* C11: every generic name, with and without a context, for the types it has. */
#include "check.h"

#define N 4

#define RMA(T)                                                                           \
  do {                                                                                   \
    static T dest[N], source[N];                                                         \
    static uint64_t sig;                                                                 \
    const T *from = source;                                                              \
    for (int i = 0; i < N; ++i) source[i] = (T)(10 * me + i), dest[i] = 0;               \
    sig = 0;                                                                             \
    shmem_barrier_all();                                                                 \
    shmem_put(dest, from, N, right);                                                     \
    shmem_put(ctx, dest, source, N, right);                                              \
    shmem_put_nbi(dest, source, N, right);                                               \
    shmem_put_nbi(ctx, dest, source, N, right);                                          \
    shmem_iput(dest, source, 1, 1, N, right);                                            \
    shmem_iput(ctx, dest, source, 1, 1, N, right);                                       \
    shmem_ibput(dest, source, 2, 2, 2, 2, right);                                        \
    shmem_ibput(ctx, dest, source, 2, 2, 2, 2, right);                                   \
    shmem_put_signal(dest, source, N, &sig, 1, SHMEM_SIGNAL_ADD, right);                 \
    shmem_put_signal(ctx, dest, source, N, &sig, 1, SHMEM_SIGNAL_ADD, right);            \
    shmem_put_signal_nbi(dest, source, N, &sig, 1, SHMEM_SIGNAL_ADD, right);             \
    shmem_put_signal_nbi(ctx, dest, source, N, &sig, 1, SHMEM_SIGNAL_ADD, right);        \
    CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 4) == 4);                          \
    for (int i = 0; i < N; ++i) CHECK(dest[i] == (T)(10 * left + i));                    \
    shmem_barrier_all();                                                                 \
    T got[N];                                                                            \
    shmem_get(got, from, N, right);                                                      \
    shmem_get(ctx, got, source, N, right);                                               \
    shmem_get_nbi(got, source, N, right);                                                \
    shmem_get_nbi(ctx, got, source, N, right);                                           \
    shmem_iget(got, source, 1, 1, N, right);                                             \
    shmem_iget(ctx, got, source, 1, 1, N, right);                                        \
    shmem_ibget(got, source, 2, 2, 2, 2, right);                                         \
    shmem_ibget(ctx, got, source, 2, 2, 2, 2, right);                                    \
    shmem_quiet();                                                                       \
    shmem_ctx_quiet(ctx);                                                                \
    for (int i = 0; i < N; ++i) CHECK(got[i] == (T)(10 * right + i));                    \
    shmem_p(&dest[0], (T)5, right);                                                      \
    shmem_p(ctx, &dest[1], (T)6, right);                                                 \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_g(&dest[0], right) == (T)5 && shmem_g(ctx, &dest[1], right) == (T)6);    \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_broadcast(SHMEM_TEAM_WORLD, dest, source, N, 0) == 0);                   \
    CHECK(dest[1] == (T)1);                                                              \
    shmem_barrier_all();                                                                 \
    static T all[64 * N], out[64 * N];                                                   \
    for (int i = 0; i < n * N; ++i) out[i] = (T)(me + i);                                \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_collect(SHMEM_TEAM_WORLD, all, source, N) == 0);                         \
    for (int i = 0; i < n * N; ++i) CHECK(all[i] == (T)(i / N * 10 + i % N));            \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_fcollect(SHMEM_TEAM_WORLD, all, source, N) == 0);                        \
    for (int i = 0; i < n * N; ++i) CHECK(all[i] == (T)(i / N * 10 + i % N));            \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_alltoall(SHMEM_TEAM_WORLD, all, out, N) == 0);                           \
    for (int i = 0; i < n * N; ++i) CHECK(all[i] == (T)(i / N + me * N + i % N));        \
    shmem_barrier_all();                                                                 \
    CHECK(shmem_alltoalls(SHMEM_TEAM_WORLD, all, out, 1, 1, N) == 0);                    \
    for (int i = 0; i < n * N; ++i) CHECK(all[i] == (T)(i / N + me * N + i % N));        \
    shmem_barrier_all();                                                                 \
    for (int i = 0; i < N; ++i) source[i] = (T)(me + 1);                                 \
    CHECK(shmem_max_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0 && dest[1] == (T)n);  \
    CHECK(shmem_min_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0 && dest[1] == (T)1);  \
    SUMS(T)                                                                              \
  } while (0)

#define SUMS(T)                                                                          \
  for (int i = 0; i < N; ++i) source[i] = (T)(me + 1);                                   \
  CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0);                       \
  CHECK(dest[N - 1] == (T)(n * (n + 1) / 2));                                            \
  CHECK(shmem_sum_inscan(SHMEM_TEAM_WORLD, dest, source, N) == 0);                       \
  CHECK(dest[0] == (T)((me + 1) * (me + 2) / 2));                                        \
  CHECK(shmem_sum_exscan(SHMEM_TEAM_WORLD, dest, source, N) == 0);                       \
  CHECK(dest[0] == (T)(me * (me + 1) / 2));                                              \
  for (int i = 0; i < N; ++i) source[i] = (T)(me == 0 ? 3 : 1);                          \
  CHECK(shmem_prod_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0 && dest[1] == (T)3);   \
  shmem_barrier_all();

#define COMPLEX(T)                        \
  do {                                    \
    static T dest[N], source[N];          \
    SUMS(T)                               \
  } while (0)

#define EXTENDED_AMO(T)                                                                  \
  do {                                                                                   \
    static T word;                                                                       \
    T old;                                                                               \
    word = 0;                                                                            \
    shmem_barrier_all();                                                                 \
    shmem_atomic_set(&word, (T)1, right);                                                \
    shmem_atomic_set(ctx, &word, (T)2, right);                                           \
    shmem_set(&word, (T)3, right);                                                       \
    CHECK(shmem_atomic_fetch((const T *)&word, right) == (T)3);                          \
    CHECK(shmem_atomic_fetch(ctx, &word, right) == (T)3 && shmem_fetch(&word, right) == (T)3); \
    CHECK(shmem_atomic_swap(&word, (T)4, right) == (T)3);                                \
    CHECK(shmem_atomic_swap(ctx, &word, (T)5, right) == (T)4);                           \
    CHECK(shmem_swap(&word, (T)6, right) == (T)5);                                       \
    shmem_atomic_swap_nbi(&old, &word, (T)7, right);                                     \
    shmem_quiet();                                                                       \
    CHECK(old == (T)6);                                                                  \
    shmem_atomic_swap_nbi(ctx, &old, &word, (T)8, right);                                \
    shmem_ctx_quiet(ctx);                                                                \
    CHECK(old == (T)7);                                                                  \
    shmem_atomic_fetch_nbi(&old, &word, right);                                          \
    shmem_quiet();                                                                       \
    CHECK(old == (T)8);                                                                  \
    shmem_atomic_fetch_nbi(ctx, &old, &word, right);                                     \
    shmem_ctx_quiet(ctx);                                                                \
    CHECK(old == (T)8);                                                                  \
  } while (0)

#define AMO(T)                                                                           \
  do {                                                                                   \
    EXTENDED_AMO(T);                                                                     \
    static T word;                                                                       \
    T old;                                                                               \
    word = 0;                                                                            \
    shmem_barrier_all();                                                                 \
    shmem_atomic_inc(&word, right);                                                      \
    shmem_atomic_inc(ctx, &word, right);                                                 \
    shmem_inc(&word, right);                                                             \
    shmem_atomic_add(&word, (T)2, right);                                                \
    shmem_atomic_add(ctx, &word, (T)2, right);                                           \
    shmem_add(&word, (T)2, right);                                                       \
    CHECK(shmem_atomic_fetch_inc(&word, right) == (T)9);                                 \
    CHECK(shmem_atomic_fetch_inc(ctx, &word, right) == (T)10);                           \
    CHECK(shmem_finc(&word, right) == (T)11);                                            \
    CHECK(shmem_atomic_fetch_add(&word, (T)2, right) == (T)12);                          \
    CHECK(shmem_atomic_fetch_add(ctx, &word, (T)2, right) == (T)14);                     \
    CHECK(shmem_fadd(&word, (T)2, right) == (T)16);                                      \
    CHECK(shmem_atomic_compare_swap(&word, (T)18, (T)1, right) == (T)18);                \
    CHECK(shmem_atomic_compare_swap(ctx, &word, (T)18, (T)2, right) == (T)1);            \
    CHECK(shmem_cswap(&word, (T)1, (T)2, right) == (T)1);                                \
    shmem_atomic_compare_swap_nbi(&old, &word, (T)2, (T)3, right);                       \
    shmem_atomic_compare_swap_nbi(ctx, &old, &word, (T)3, (T)4, right);                  \
    shmem_atomic_fetch_inc_nbi(&old, &word, right);                                      \
    shmem_atomic_fetch_inc_nbi(ctx, &old, &word, right);                                 \
    shmem_atomic_fetch_add_nbi(&old, &word, (T)1, right);                                \
    shmem_atomic_fetch_add_nbi(ctx, &old, &word, (T)1, right);                           \
    shmem_quiet();                                                                       \
    shmem_ctx_quiet(ctx);                                                                \
    CHECK(shmem_atomic_fetch(&word, right) == (T)8);                                     \
    shmem_barrier_all();                                                                 \
  } while (0)

#define BITWISE_AMO(T)                                                                   \
  do {                                                                                   \
    static T word;                                                                       \
    T old;                                                                               \
    word = 0xff;                                                                         \
    shmem_barrier_all();                                                                 \
    shmem_atomic_and(&word, (T)0xf0, right);                                             \
    shmem_atomic_and(ctx, &word, (T)0x70, right);                                        \
    shmem_atomic_or(&word, (T)1, right);                                                 \
    shmem_atomic_or(ctx, &word, (T)2, right);                                            \
    shmem_atomic_xor(&word, (T)4, right);                                                \
    shmem_atomic_xor(ctx, &word, (T)8, right);                                           \
    CHECK(shmem_atomic_fetch_and(&word, (T)0x0f, right) == (T)0x7f);                     \
    CHECK(shmem_atomic_fetch_and(ctx, &word, (T)0x0f, right) == (T)0x0f);                \
    CHECK(shmem_atomic_fetch_or(&word, (T)0x10, right) == (T)0x0f);                      \
    CHECK(shmem_atomic_fetch_or(ctx, &word, (T)0x10, right) == (T)0x1f);                 \
    CHECK(shmem_atomic_fetch_xor(&word, (T)0x10, right) == (T)0x1f);                     \
    CHECK(shmem_atomic_fetch_xor(ctx, &word, (T)0x10, right) == (T)0x0f);                \
    shmem_atomic_fetch_and_nbi(&old, &word, (T)1, right);                                \
    shmem_atomic_fetch_and_nbi(ctx, &old, &word, (T)1, right);                           \
    shmem_atomic_fetch_or_nbi(&old, &word, (T)1, right);                                 \
    shmem_atomic_fetch_or_nbi(ctx, &old, &word, (T)1, right);                            \
    shmem_atomic_fetch_xor_nbi(&old, &word, (T)1, right);                                \
    shmem_atomic_fetch_xor_nbi(ctx, &old, &word, (T)1, right);                           \
    shmem_barrier_all();                                                                 \
  } while (0)

#define SYNC(T)                                                                          \
  do {                                                                                   \
    static T words[N];                                                                   \
    T ones[N] = {1, 1, 1, 1};                                                            \
    int skip[N] = {0, 1, 0, 0};                                                          \
    size_t indices[N];                                                                   \
    for (int i = 0; i < N; ++i) words[i] = 0;                                            \
    CHECK(!shmem_test(&words[0], SHMEM_CMP_NE, (T)0));                                   \
    CHECK(!shmem_test_all(words, N, skip, SHMEM_CMP_EQ, (T)1));                          \
    CHECK(shmem_test_any(words, N, NULL, SHMEM_CMP_EQ, (T)1) == SIZE_MAX);               \
    CHECK(shmem_test_some(words, N, indices, NULL, SHMEM_CMP_EQ, (T)1) == 0);            \
    shmem_barrier_all();                                                                 \
    shmem_put(words, ones, N, right);                                                    \
    shmem_wait_until(&words[1], SHMEM_CMP_EQ, (T)1);                                     \
    shmem_wait_until_all(words, N, NULL, SHMEM_CMP_GE, (T)1);                            \
    CHECK(shmem_wait_until_any(words, N, skip, SHMEM_CMP_GT, (T)0) < N);                 \
    CHECK(shmem_wait_until_some(words, N, indices, skip, SHMEM_CMP_LE, (T)1) == 3);      \
    shmem_wait_until_all_vector(words, N, NULL, SHMEM_CMP_EQ, ones);                     \
    CHECK(shmem_wait_until_any_vector(words, N, skip, SHMEM_CMP_EQ, ones) < N);          \
    CHECK(shmem_wait_until_some_vector(words, N, indices, skip, SHMEM_CMP_EQ, ones) == 3); \
    CHECK(shmem_test_all_vector(words, N, NULL, SHMEM_CMP_EQ, ones));                    \
    CHECK(shmem_test_any_vector(words, N, skip, SHMEM_CMP_EQ, ones) < N);                \
    CHECK(shmem_test_some_vector(words, N, indices, skip, SHMEM_CMP_LT, ones) == 0);     \
    shmem_barrier_all();                                                                 \
  } while (0)

#define BITWISE(T)                                                                       \
  do {                                                                                   \
    static T dest[N], source[N];                                                         \
    for (int i = 0; i < N; ++i) source[i] = (T)(me == 0 ? 5 : 4);                        \
    CHECK(shmem_and_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0 && dest[3] == (T)(n > 1 ? 4 : 5));  \
    CHECK(shmem_or_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0 && dest[3] == (T)5);   \
    CHECK(shmem_xor_reduce(SHMEM_TEAM_WORLD, dest, source, N) == 0);                     \
    CHECK(dest[3] == (T)(n % 2 == 0 ? 1 : 5));                                           \
    shmem_barrier_all();                                                                 \
  } while (0)

static int me, n, right, left;
static shmem_ctx_t ctx;
static shmem_team_t world = SHMEM_TEAM_WORLD;

int main(void) {
  shmem_init();
  me = shmem_my_pe();
  n = shmem_n_pes();
  right = (me + 1) % n;
  left = (me + n - 1) % n;
  CHECK(shmem_ctx_create(0, &ctx) == 0);
  RMA(float); RMA(double); RMA(long double); RMA(char); RMA(signed char); RMA(short); RMA(int);
  RMA(long); RMA(long long); RMA(unsigned char); RMA(unsigned short); RMA(unsigned int);
  RMA(unsigned long); RMA(unsigned long long); RMA(int8_t); RMA(int16_t); RMA(int32_t);
  RMA(int64_t); RMA(uint8_t); RMA(uint16_t); RMA(uint32_t); RMA(uint64_t); RMA(size_t);
  RMA(ptrdiff_t);
  COMPLEX(float _Complex); COMPLEX(double _Complex);
  EXTENDED_AMO(float); EXTENDED_AMO(double);
  AMO(int); AMO(long); AMO(long long); AMO(unsigned int); AMO(unsigned long);
  AMO(unsigned long long); AMO(int32_t); AMO(int64_t); AMO(uint32_t); AMO(uint64_t);
  AMO(size_t); AMO(ptrdiff_t);
  BITWISE_AMO(unsigned int); BITWISE_AMO(unsigned long); BITWISE_AMO(unsigned long long);
  BITWISE_AMO(int32_t); BITWISE_AMO(int64_t); BITWISE_AMO(uint32_t); BITWISE_AMO(uint64_t);
  SYNC(short); SYNC(int); SYNC(long); SYNC(long long); SYNC(unsigned short);
  SYNC(unsigned int); SYNC(unsigned long); SYNC(unsigned long long); SYNC(size_t);
  BITWISE(unsigned char); BITWISE(unsigned short); BITWISE(unsigned int);
  BITWISE(unsigned long); BITWISE(unsigned long long); BITWISE(int8_t); BITWISE(int16_t);
  BITWISE(int32_t); BITWISE(int64_t); BITWISE(size_t);
  static uint64_t sig;
  static long old_style[SHMEM_SYNC_SIZE];
  shmem_signal_add(&sig, 1, right);
  shmem_signal_add(ctx, &sig, 1, right);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 2) == 2);
  CHECK(shmem_sync(world) == 0);
  shmem_sync(0, 0, n, old_style);
  shmem_ctx_destroy(ctx);
  shmem_finalize();
  return 0;
}
