/* The same barrier by OpenSHMEM, to compare in one run: prints the median of several batches. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { batches = 31, rounds = 10000 };

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

int main(void) {
  double took[batches];
  shmem_init();
  for (int i = 0; i < 1000; ++i) shmem_barrier_all();
  for (int b = 0; b < batches; ++b) {
    const double begin = now_us();
    for (int i = 0; i < rounds; ++i) shmem_barrier_all();
    took[b] = (now_us() - begin) / rounds;
  }
  if (shmem_my_pe() == 0) {
    qsort(took, batches, sizeof(took[0]), by_value);
    printf("barrier_us %.4f\n", took[batches / 2]);
  }
  shmem_finalize();
  return 0;
}
