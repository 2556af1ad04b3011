/* Threads that put, add and wait at once, each in a context of its own. */
#include <pthread.h>
#include <stdint.h>

#include "check.h"

enum { threads = 4, rounds = 200 };
static long boxes[threads], total;

static void *work(void *arg) {
  const int t = (int)(intptr_t)arg, me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0);
  for (long i = 1; i <= rounds; ++i) {
    shmem_ctx_long_atomic_inc(ctx, &total, 0);
    shmem_ctx_long_p(ctx, &boxes[t], i, right);
    shmem_long_wait_until(&boxes[t], SHMEM_CMP_GE, i);
  }
  shmem_ctx_quiet(ctx);
  shmem_ctx_destroy(ctx);
  return NULL;
}

int main(void) {
  int provided = -1;
  CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0);
  CHECK(provided == SHMEM_THREAD_MULTIPLE);
  pthread_t t[threads];
  for (int i = 0; i < threads; ++i) pthread_create(&t[i], NULL, work, (void *)(intptr_t)i);
  for (int i = 0; i < threads; ++i) pthread_join(t[i], NULL);
  shmem_barrier_all();
  if (shmem_my_pe() == 0) CHECK(total == (long)threads * rounds * shmem_n_pes());
  shmem_finalize();
  return 0;
}
