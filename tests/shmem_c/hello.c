/* C99: the functions by their typed names, and what the library says of itself. */
#include <string.h>

#include "check.h"

int main(void) {
  int major = 0, minor = 0, initialized = 1;
  char name[SHMEM_MAX_NAME_LEN];
  shmem_query_initialized(&initialized);
  CHECK(!initialized);
  shmem_init();
  shmem_query_initialized(&initialized);
  CHECK(initialized);
  shmem_info_get_version(&major, &minor);
  shmem_info_get_name(name);
  CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION);
  CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0);

  const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
  long *box = shmem_malloc(sizeof(*box));
  *box = -1;
  shmem_barrier_all();
  shmem_long_p(box, me, right);
  shmem_barrier_all();
  CHECK(*box == (me + n - 1) % n);
  CHECK(shmem_long_g(box, right) == me);
  CHECK(shmem_ptr(box, me) == box);
  CHECK(shmem_addr_accessible(box, right) && !shmem_addr_accessible(&n, right));
  CHECK(shmem_pe_accessible(right) && !shmem_pe_accessible(n) && !shmem_pe_accessible(-1));
  shmem_free(box);
  if (me == 0) printf("%d PEs\n", n);
  shmem_finalize();
  return 0;
}
