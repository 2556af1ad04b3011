/* C99: names and active sets of older programs. */
#include "check.h"

static long sync_a[SHMEM_COLLECT_SYNC_SIZE], sync_b[SHMEM_REDUCE_SYNC_SIZE];
static long source[4], dest[4 * 64], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 4], word;

int main(void) {
  start_pes(0);
  const int me = _my_pe(), n = _num_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
  for (int i = 0; i < SHMEM_COLLECT_SYNC_SIZE; ++i) sync_a[i] = SHMEM_SYNC_VALUE;
  for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; ++i) sync_b[i] = _SHMEM_SYNC_VALUE;
  for (int i = 0; i < 4; ++i) source[i] = me + i;
  dest[0] = -1;
  shmem_barrier(0, 0, n, sync_a);

  shmem_broadcast64(dest, source, 4, 0, 0, 0, n, sync_a);
  CHECK(me == 0 ? dest[0] == -1 : dest[3] == 3);
  shmem_barrier_all();
  shmem_fcollect64(dest, source, 4, 0, 0, n, sync_a);
  for (int i = 0; i < 4 * n; ++i) CHECK(dest[i] == i / 4 + i % 4);
  shmem_barrier_all();
  shmem_collect64(dest, source, (size_t)(me % 2 + 1), 0, 0, n, sync_b);
  CHECK(n < 2 || (dest[0] == 0 && dest[1] == 1 && dest[2] == 2));
  shmem_barrier_all();

  /* Even PEs alone, again and again, while the odd ones go their own way. */
  for (int round = 0; round < 100; ++round) {
    const int first = me % 2, members = (n - first + 1) / 2;
    long want = 0;
    for (int pe = first; pe < n; pe += 2) want += pe + 1;
    shmem_long_sum_to_all(dest, source, 2, first, 1, members, work, sync_a);
    CHECK(dest[1] == want);
    shmem_sync(first, 1, members, sync_b);
  }
  shmem_barrier_all();

  word = 0;
  shmem_barrier_all();
  CHECK(shmem_long_finc(&word, right) == 0 && shmem_long_fadd(&word, 4, right) == 1);
  CHECK(shmem_long_cswap(&word, 5, 6, right) == 5 && shmem_long_swap(&word, 7, right) == 6);
  CHECK(shmem_swap(&word, 8, right) == 7 && shmem_long_fetch(&word, right) == 8);
  shmem_long_set(&word, 9, right);
  shmem_wait_until(&word, SHMEM_CMP_EQ, 9);
  shmem_barrier_all();
  shmem_long_p(&word, left, left);
  shmem_wait(&word, 9);
  CHECK(word == me);
  shmem_udcflush();

  int *p = shmalloc(sizeof(int));
  p = shrealloc(p, 100 * sizeof(int));
  CHECK(p != 0 && shmem_addr_accessible(p, right));
  shfree(p);
  return 0; /* shmem_finalize is implied */
}
