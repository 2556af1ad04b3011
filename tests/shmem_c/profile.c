/* A tool between program and library: shmem_X of its own, pshmem_X for the work. */
#include <pshmem.h>

#include "check.h"

static int puts_seen, level_seen;

void shmem_long_put(long *dest, const long *source, size_t nelems, int pe) {
  ++puts_seen;
  pshmem_long_put(dest, source, nelems, pe);
}
void shmem_pcontrol(int level, ...) { level_seen = level; }

static long box;

int main(void) {
  shmem_init();
  const int me = shmem_my_pe(), n = shmem_n_pes();
  const long mine = me;
  shmem_put(&box, &mine, 1, (me + 1) % n);
  shmem_long_put_nbi(&box, &mine, 1, (me + 1) % n);
  shmem_pcontrol(2);
  shmem_barrier_all();
  CHECK(puts_seen == 1 && level_seen == 2);
  CHECK(box == (me + n - 1) % n);
  shmem_finalize();
  return 0;
}
