/* OpenSHMEM operations between two PEs, for any implementation: prints "name median" lines.
   With an argument, so many times fewer rounds. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { batches = 21, most = 1 << 20 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static long* box;
static uint64_t* flag;
static long own = 7;
static char* large;
static char* source;
static long sink;
static int fewer = 1;

static void put_8(int rounds) {
  for (int i = 0; i < rounds; ++i) shmem_long_put(box, &own, 1, 1);
  shmem_quiet();
}
static void get_8(int rounds) {
  for (int i = 0; i < rounds; ++i) shmem_long_get(&own, box, 1, 1);
  sink += own;
}
static void fetch_add(int rounds) {
  for (int i = 0; i < rounds; ++i) sink += shmem_long_atomic_fetch_add(box, 1, 1);
}
static void put_1m(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    shmem_putmem(large, source, most, 1);
    shmem_quiet();
  }
}
static void rate_8(int rounds) {
  for (int i = 0; i < rounds; ++i) shmem_long_put_nbi(box + (i & 63), &own, 1, 1);
  shmem_quiet();
}

static double median_us(void (*f)(int), int rounds) {
  double took[batches];
  rounds = rounds / fewer + 1;
  f(rounds / 10 + 1);
  for (int b = 0; b < batches; ++b) {
    const double begin = now_us();
    f(rounds);
    took[b] = (now_us() - begin) / rounds;
  }
  qsort(took, batches, sizeof(took[0]), by_value);
  return took[batches / 2];
}

/* 8 bytes and the news of them to PE 1 and back. */
static void ping_pong(int rounds) {
  static uint64_t n = 0;
  const int other = 1 - shmem_my_pe();
  for (int i = 0; i < rounds; ++i) {
    ++n;
    if (other == 0) shmem_uint64_wait_until(flag, SHMEM_CMP_GE, n);
#if SHMEM_MAJOR_VERSION > 1 || SHMEM_MINOR_VERSION >= 5
    shmem_long_put_signal(box, &own, 1, flag, n, SHMEM_SIGNAL_SET, other);
#else
    shmem_long_put(box, &own, 1, other);
    shmem_fence();
    shmem_uint64_p(flag, n, other);
#endif
    if (other == 1) shmem_uint64_wait_until(flag, SHMEM_CMP_GE, n);
  }
}
static void barriers(int rounds) {
  for (int i = 0; i < rounds; ++i) shmem_barrier_all();
}

int main(int argc, char** argv) {
  if (argc > 1 && atoi(argv[1]) > 0) fewer = atoi(argv[1]);
  shmem_init();
  box = shmem_calloc(64, sizeof(*box));
  flag = shmem_calloc(1, sizeof(*flag));
  large = shmem_malloc(most);
  source = calloc(1, most);
  const int first = shmem_my_pe() == 0;
  shmem_barrier_all();
  if (first) {
    printf("put_8 %.5f\n", median_us(put_8, 200000));
    printf("get_8 %.5f\n", median_us(get_8, 200000));
    printf("fetch_add %.5f\n", median_us(fetch_add, 100000));
    printf("put_1m %.4f\n", median_us(put_1m, 200));
    printf("rate_8 %.4f\n", 1 / median_us(rate_8, 200000));
  }
  shmem_barrier_all();
  const double ping = shmem_my_pe() < 2 ? median_us(ping_pong, 10000) / 2 : 0;
  const double barrier = median_us(barriers, 10000);
  if (first) printf("ping_pong_8 %.5f\nbarrier %.5f\n", ping, barrier);
  shmem_barrier_all();
  free(source);
  shmem_free(large);
  shmem_free(flag);
  shmem_free(box);
  shmem_finalize();
  return 0;
}
