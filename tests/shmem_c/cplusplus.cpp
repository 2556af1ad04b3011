// The header in C++, with <complex.h> as a program may have it.
#include <complex>
#include <vector>

#include "check.h"

static double _Complex sum[2], parts[2];
static shmem_team_t evens = SHMEM_TEAM_INVALID;

int main() {
  shmem_init();
  const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
  auto* box = static_cast<long*>(shmem_calloc(4, sizeof(long)));
  const std::vector<long> four = {1, 2, 3, 4};
  shmem_long_put(box, four.data(), 4, right);
  shmem_barrier_all();
  CHECK(box[3] == 4 && shmem_long_g(box, right) == 1);

  parts[0] = parts[1] = std::complex<double>(1, me).real() + 0.0;
  CHECK(shmem_complexd_sum_reduce(SHMEM_TEAM_WORLD, sum, parts, 2) == 0);
  CHECK(__real__ sum[1] == n);

  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, nullptr, 0, &evens) == 0);
  CHECK((evens != SHMEM_TEAM_INVALID) == (me % 2 == 0));
  CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, evens) == (me % 2 == 0 ? me / 2 : -1));
  shmem_ctx_t ctx = SHMEM_CTX_INVALID;
  if (shmem_team_create_ctx(evens, SHMEM_CTX_PRIVATE, &ctx) == 0) {
    const int members = shmem_team_n_pes(evens), mine = shmem_team_my_pe(evens);
    shmem_ctx_long_p(ctx, &box[1], 100 + mine, (mine + 1) % members);
    shmem_ctx_quiet(ctx);
    shmem_team_sync(evens);
    CHECK(box[1] == 100 + (mine + members - 1) % members);
    shmem_ctx_destroy(ctx);
  }
  shmem_team_destroy(evens);
  shmem_free(box);
  shmem_finalize();
}
