/* peer_mpi_coll OP TYPE REDOP BYTES...: one collective of MPI, for the sizes that are named, of the
 * longer of input and result: prints the median time of several batches, in us. all_reduce is made
 * in place. Exit code 3 when MPI has no such operation or type. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int same(const char* a, const char* b) { return strcmp(a, b) == 0; }

static MPI_Datatype type_of(const char* name) {
  if (same(name, "f32")) return MPI_FLOAT;
  if (same(name, "f64")) return MPI_DOUBLE;
  if (same(name, "i32")) return MPI_INT32_T;
  if (same(name, "i64")) return MPI_INT64_T;
  return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(const char* name) {
  if (same(name, "sum")) return MPI_SUM;
  if (same(name, "prod")) return MPI_PROD;
  if (same(name, "min")) return MPI_MIN;
  if (same(name, "max")) return MPI_MAX;
  if (same(name, "bit_and")) return MPI_BAND;
  if (same(name, "bit_or")) return MPI_BOR;
  if (same(name, "bit_xor")) return MPI_BXOR;
  return MPI_OP_NULL;
}

/* Elements of type t; where ranks have parts, `part` of them each. */
struct call {
  const char* name;
  MPI_Datatype t;
  MPI_Op op;
  int count;
  int part;
  char* in;
  char* out;
};

static int make(const struct call* c) {
  const MPI_Comm all = MPI_COMM_WORLD;
  if (same(c->name, "all_reduce")) return MPI_Allreduce(MPI_IN_PLACE, c->out, c->count, c->t, c->op, all);
  if (same(c->name, "reduce")) return MPI_Reduce(c->in, c->out, c->count, c->t, c->op, 0, all);
  if (same(c->name, "reduce_scatter")) return MPI_Reduce_scatter_block(c->in, c->out, c->part, c->t, c->op, all);
  if (same(c->name, "broadcast")) return MPI_Bcast(c->out, c->count, c->t, 0, all);
  if (same(c->name, "all_gather")) return MPI_Allgather(c->in, c->part, c->t, c->out, c->part, c->t, all);
  if (same(c->name, "gather")) return MPI_Gather(c->in, c->part, c->t, c->out, c->part, c->t, 0, all);
  if (same(c->name, "scatter")) return MPI_Scatter(c->in, c->part, c->t, c->out, c->part, c->t, 0, all);
  if (same(c->name, "all_to_all")) return MPI_Alltoall(c->in, c->part, c->t, c->out, c->part, c->t, all);
  if (same(c->name, "send_recv")) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    return MPI_Sendrecv(c->in, c->count, c->t, (rank + 1) % ranks, 0, c->out, c->count, c->t,
                        (rank + ranks - 1) % ranks, 0, all, MPI_STATUS_IGNORE);
  }
  return MPI_ERR_ARG;
}

/* Microseconds of one call. */
static double measure(const struct call* c, size_t bytes) {
  double took[batches];
  const int rounds = rounds_for(bytes);
  for (int b = 0; b < batches; ++b) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < rounds; ++i) {
      if (make(c) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    took[b] = (MPI_Wtime() - begin) / rounds * 1e6;
  }
  qsort(took, batches, sizeof(took[0]), by_value);
  return took[batches / 2];
}

static void measure_all(struct call* c, int sizes, char** texts) {
  int rank = 0, ranks = 1, each = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Type_size(c->t, &each);
  for (int i = 0; i < sizes; ++i) {
    const size_t bytes = strtoull(texts[i], NULL, 10);
    if (bytes / (size_t)each > INT_MAX) continue;
    c->count = (int)(bytes / (size_t)each);
    c->part = c->count / ranks;
    c->in = calloc(bytes + 1, 1);
    c->out = calloc(bytes + 1, 1);
    const double us = measure(c, bytes);
    if (rank == 0) printf("%zu %.4f\n", bytes, us);
    free(c->in);
    free(c->out);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 3);
  struct call c = {.name = argv[1], .t = type_of(argv[2]), .op = op_of(argv[3])};
  if (c.t == MPI_DATATYPE_NULL || c.op == MPI_OP_NULL) MPI_Abort(MPI_COMM_WORLD, 3);
  measure_all(&c, argc - 4, argv + 4);
  MPI_Finalize();
  return 0;
}
