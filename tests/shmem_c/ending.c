/* ending CODE [compute|wait|die|astray]: PE 1 ends the job, or is lost, while the others compute or
 * wait. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static long never;

int main(int argc, char **argv) {
  const int code = atoi(argv[1]);
  const char *how = argc > 2 ? argv[2] : "compute";
  shmem_init();
  shmem_barrier_all();
  printf("printed before the end");
  if (shmem_my_pe() == 1) {
    if (strcmp(how, "die") == 0) abort();
    if (strcmp(how, "leave") == 0) exit(code);
    if (strcmp(how, "astray") == 0) shmem_long_p(&never, 1, shmem_n_pes() + 5);
    shmem_global_exit(code);
  }
  if (strcmp(how, "compute") != 0) shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
  for (volatile long busy = 0;; ++busy) continue;
}
