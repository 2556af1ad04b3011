// Reductions and scans of teams and active sets.
#include "collectives.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;
using view = device::shmem;

namespace {

// Names as in the functions'.
using op_sum = device::shmem_op::sum;
using op_prod = device::shmem_op::prod;
using op_min = device::shmem_op::min;
using op_max = device::shmem_op::max;
using op_and = device::shmem_op::bit_and;
using op_or = device::shmem_op::bit_or;
using op_xor = device::shmem_op::bit_xor;

template <class Op, class T>
auto reduce(T* dest, const T* source, size_t n) {
  return [=](const view& v) { return n == 0 ? v.sync(me) : v.reduce(me, Op{}, dest, source, n); };
}

}  // namespace

#define REDUCE(N, T, OP)                                                                    \
  CW_SHMEM(int, N##_##OP##_reduce, shmem_team_t team, T* dest, const T* source, size_t n) { \
    return by_team(team, "shmem_" #N "_" #OP "_reduce", {n, sizeof(T), 1, dest, source},    \
                   reduce<op_##OP>(dest, source, n));                                       \
  }
#define BITWISE(N, T) REDUCE(N, T, and) REDUCE(N, T, or) REDUCE(N, T, xor)
_SHMEM_BITWISE_TYPES(BITWISE)
#define ORDERED(N, T) REDUCE(N, T, max) REDUCE(N, T, min)
_SHMEM_RMA_TYPES(ORDERED)
#define ARITHMETIC(N, T) REDUCE(N, T, sum) REDUCE(N, T, prod)
_SHMEM_RMA_TYPES(ARITHMETIC)
_SHMEM_COMPLEX_TYPES(ARITHMETIC)

#define SCANS(N, T)                                                                                \
  CW_SHMEM(int, N##_sum_inscan, shmem_team_t team, T* dest, const T* source, size_t n) {           \
    return by_team(team, "shmem_" #N "_sum_inscan", {n, sizeof(T), 1, dest, source},               \
                   [=](const view& v) {                                                            \
                     return n == 0 ? v.sync(me) : v.inclusive_scan(me, op_sum{}, dest, source, n); \
                   });                                                                             \
  }                                                                                                \
  CW_SHMEM(int, N##_sum_exscan, shmem_team_t team, T* dest, const T* source, size_t n) {           \
    return by_team(                                                                                \
        team, "shmem_" #N "_sum_exscan", {n, sizeof(T), 1, dest, source}, [=](const view& v) {     \
          return n == 0 ? v.sync(me) : v.exclusive_scan(me, op_sum{}, {}, dest, source, n);        \
        });                                                                                        \
  }
_SHMEM_RMA_TYPES(SCANS)
_SHMEM_COMPLEX_TYPES(SCANS)

#define TO_ALL(N, T, OP)                                                                   \
  CW_SHMEM(void, N##_##OP##_to_all, T* dest, const T* source, int nreduce, _SHMEM_SET, T*, \
           long*) {                                                                        \
    by_set("shmem_" #N "_" #OP "_to_all", PE_start, logPE_stride, PE_size,                 \
           {static_cast<size_t>(nreduce), sizeof(T), 1, dest, source},                     \
           reduce<op_##OP>(dest, source, static_cast<size_t>(nreduce)));                   \
  }
#define TO_ALL_BITWISE(N, T) TO_ALL(N, T, and) TO_ALL(N, T, or) TO_ALL(N, T, xor)
_SHMEM_TO_ALL_INTS(TO_ALL_BITWISE)
#define TO_ALL_ORDERED(N, T) TO_ALL(N, T, max) TO_ALL(N, T, min)
_SHMEM_TO_ALL_INTS(TO_ALL_ORDERED)
_SHMEM_TO_ALL_FLOATS(TO_ALL_ORDERED)
#define TO_ALL_ARITHMETIC(N, T) TO_ALL(N, T, sum) TO_ALL(N, T, prod)
_SHMEM_TO_ALL_INTS(TO_ALL_ARITHMETIC)
_SHMEM_TO_ALL_FLOATS(TO_ALL_ARITHMETIC)
_SHMEM_COMPLEX_TYPES(TO_ALL_ARITHMETIC)
