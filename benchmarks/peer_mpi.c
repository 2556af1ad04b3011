/* The same put by plain MPI, to compare in one run: prints the median of several batches. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { batches = 31, rounds = 5000 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  double took[batches];
  int rank = 0;
  long long word = 0;
  long long* memory = NULL;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  memory = malloc(4096);
  MPI_Win_create(memory, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int b = 0; b < batches; ++b) {
      const double begin = MPI_Wtime();
      for (int i = 0; i < rounds; ++i) {
        word = i;
        MPI_Put(&word, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
        MPI_Win_flush(1, win);
      }
      took[b] = (MPI_Wtime() - begin) / rounds * 1e6;
    }
    qsort(took, batches, sizeof(took[0]), by_value);
    printf("put_quiet_us %.4f\n", took[batches / 2]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
  free(memory);
  MPI_Finalize();
  return 0;
}
