/* Global and static variables are symmetric, wherever they lie, and remain what they were. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int initialised = 4711;
long zero;
double big[300000];
static const char *text = "unmoved";
char unaligned[3] = {1, 2, 3};

static long *of_a_function(void) {
  static long here = 7;
  return &here;
}

int main(void) {
  big[299999] = 1.5;
  setenv("GLOBALS_TEST", "kept", 1);
  shmem_init();
  const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
  CHECK(initialised == 4711 && zero == 0 && big[299999] == 1.5 && *of_a_function() == 7);
  CHECK(strcmp(text, "unmoved") == 0 && strcmp(getenv("GLOBALS_TEST"), "kept") == 0);
  shmem_barrier_all();

  shmem_int_p(&initialised, me, right);
  shmem_long_atomic_add(&zero, me + 1, 0);
  shmem_double_p(&big[299999], me, right);
  shmem_long_p(of_a_function(), 100 + me, right);
  shmem_char_p(&unaligned[1], (char)(50 + me), right);
  shmem_barrier_all();
  CHECK(initialised == left && big[299999] == left && *of_a_function() == 100 + left);
  CHECK(unaligned[0] == 1 && unaligned[1] == 50 + left && unaligned[2] == 3);
  if (me == 0) CHECK(zero == (long)n * (n + 1) / 2);

  shmem_finalize();
  if (initialised != left || *of_a_function() != 100 + left) return 1;
  initialised = 1;
  return initialised - 1;
}
