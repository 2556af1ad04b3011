/* ending CODE [HOW [WHERE [WHO]]]: PE WHO (1) ends the job, is lost or errs (exit) while the others
 * are busy with WHERE (compute). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static long never, words[1000];
static const char *how = "exit", *where = "compute";

static int is(const char *a, const char *b) {
  return strcmp(a, b) == 0;
}

/* What a PE does wrong, one a moment after the other. */
static void err(void) {
  long inside = 0, *gone = shmem_malloc(100 * sizeof(long));
  usleep(5000 * shmem_my_pe());
  if (is(how, "no_room")) shmem_malloc((size_t)1 << 40);
  if (is(how, "no_root")) shmem_long_broadcast(SHMEM_TEAM_WORLD, words, words + 500, 10, 8);
  if (is(how, "outside_sum")) shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &inside, words, 1);
  if (is(how, "no_pe")) shmem_long_p(&never, 1, shmem_n_pes() + 5);
  if (is(how, "outside")) shmem_long_put(&inside, words, 1, 0);
  if (is(how, "too_long")) shmem_long_put(words, words, (size_t)1 << 61, 0);
  if (is(how, "too_long_strided")) shmem_long_iget(words, words, 1, 2, (size_t)1 << 60, 0);
  if (is(how, "too_long_sum")) {
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words, (size_t)1 << 61);
  }
  shmem_free(gone);
  if (is(how, "freed")) shmem_long_p(gone, 1, 0);
  if (is(how, "freed_source")) words[0] = shmem_long_g(gone + 99, 0);
}

int main(int argc, char **argv) {
  const int code = atoi(argv[1]), who = argc > 4 ? atoi(argv[4]) : 1;
  if (argc > 2) how = argv[2];
  if (argc > 3) where = argv[3];
  if (is(how, "early_barrier")) shmem_barrier_all();
  if (is(how, "early_quiet")) shmem_quiet();
  if (is(how, "early_team")) shmem_team_my_pe(SHMEM_TEAM_WORLD);
  shmem_init();
  void *const memory = shmem_malloc(100);
  shmem_barrier_all();
  printf("printed before the end");
  if (is(where, "err")) err();
  if (is(where, "sizes")) {
    /* Not all mean the same: found by whoever hears of it first. */
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words + 500, shmem_my_pe() == who ? 10 : 100);
  }
  if (is(where, "late")) shmem_finalize();
  if (is(how, "late_barrier")) shmem_barrier_all();
  if (is(how, "late_team")) shmem_team_sync(SHMEM_TEAM_WORLD);
  if (shmem_my_pe() == who) {
    if (is(how, "die")) abort();
    if (is(how, "leave")) exit(code);
    if (is(how, "return")) return 0;
    if (is(how, "finalize")) shmem_finalize();
    if (is(how, "free")) shmem_free(memory);
    shmem_global_exit(code);
  }
  for (;;) {
    if (is(where, "end")) {
      shmem_finalize();
      return 0;
    }
    if (is(where, "wait")) shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
    if (is(where, "barrier")) shmem_barrier_all();
    if (is(where, "get")) {
      shmem_long_get(words, words + 500, 100, who);
      shmem_sync_all();
    }
  }
}
