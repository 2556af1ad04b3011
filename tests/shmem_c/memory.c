/* Allocation: aligned, zero, kept over realloc, and null when there is no room. */
#include <stdint.h>

#include "check.h"

int main(void) {
  shmem_init();
  const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
  CHECK(shmem_malloc(0) == NULL);
  CHECK(shmem_malloc((size_t)1 << 45) == NULL);
  CHECK(shmem_calloc(SIZE_MAX / 2, 4) == NULL);
  CHECK(shmem_align((size_t)1 << 40, 8) == NULL);
  for (size_t alignment = 1; alignment <= 4 << 20; alignment *= 2) {
    char *p = shmem_align(alignment, 100);
    CHECK(p != NULL && (uintptr_t)p % alignment == 0);
    shmem_free(p);
  }
  long *zeros = shmem_calloc(1000, sizeof(long));
  for (int i = 0; i < 1000; ++i) CHECK(zeros[i] == 0);
  shmem_barrier_all();
  shmem_long_p(&zeros[999], me, right);
  long *more = shmem_realloc(zeros, 100000 * sizeof(long));
  CHECK(more != NULL && more[999] == (me + n - 1) % n);
  more = shmem_realloc(more, 10 * sizeof(long));
  CHECK(more != NULL && more[9] == 0);
  CHECK(shmem_realloc(more, 0) == NULL);
  /* All that SHMEM_SYMMETRIC_SIZE promises, again and again. */
  for (int i = 0; i < 10; ++i) {
    char *all = shmem_malloc_with_hints((size_t)1536 * 1024, SHMEM_MALLOC_ATOMICS_REMOTE);
    CHECK(all != NULL);
    all[1536 * 1024 - 1] = 1;
    shmem_free(all);
  }
  /* Until there is no more; what is given back can be had again. */
  void *pieces[10000];
  for (int again = 0; again < 2; ++again) {
    int count = 0;
    while (count < 10000 && (pieces[count] = shmem_malloc(256 * 1024)) != NULL) ++count;
    CHECK(count >= 6 && count < 10000);
    while (count > 0) shmem_free(pieces[--count]);
  }
  shmem_free(NULL);
  shmem_finalize();
  return 0;
}
