/* MPI_Allreduce of floats, in place, for the sizes that are named, in bytes: prints the median time of
 * several batches, in us. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { batches = 11 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static int rounds_for(size_t bytes) {
  if (bytes <= 4096) return 500;
  return bytes <= 1048576 ? 50 : 3;
}

int main(int argc, char** argv) {
  double took[batches];
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int a = 1; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10);
    float* const data = calloc(bytes, 1);
    const int rounds = rounds_for(bytes);
    for (int b = 0; b < batches; ++b) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (int i = 0; i < rounds; ++i) {
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }
      took[b] = (MPI_Wtime() - begin) / rounds * 1e6;
    }
    qsort(took, batches, sizeof(took[0]), by_value);
    if (rank == 0) printf("%zu %.4f\n", bytes, took[batches / 2]);
    free(data);
  }
  MPI_Finalize();
  return 0;
}
