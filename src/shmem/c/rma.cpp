// put, get, and puts with a signal.
#include "call.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;

namespace {

template <class T>
T get_one(const call& c, const T* source) {
  T value;
  c.check_memory(source);
  c.check(c.on.g(me, value, source, c.pe));
  return value;
}

template <class T>
void check_strided(const call& c, ptrdiff_t dst, ptrdiff_t sst, size_t block, size_t blocks) {
  c.check_length<T>(blocks, block);
  c.check_length<T>(blocks, length_of(dst));
  c.check_length<T>(blocks, length_of(sst));
}

device::signal_op signal_op(const call& c, int sig_op) {
  static_assert(static_cast<int>(device::signal_op::set) == SHMEM_SIGNAL_SET &&
                static_cast<int>(device::signal_op::add) == SHMEM_SIGNAL_ADD);
  if (sig_op != SHMEM_SIGNAL_SET && sig_op != SHMEM_SIGNAL_ADD) {
    give_up(c.name, "no such signal operation");
  }
  return static_cast<device::signal_op>(sig_op);
}

// What functions named by a size move.
using unit_mem = std::byte;
using unit_8 = std::uint8_t;
using unit_16 = std::uint16_t;
using unit_32 = std::uint32_t;
using unit_64 = std::uint64_t;
struct unit_128 {
  std::uint64_t halves[2];
};

}  // namespace

#define PUT_OR_GET(NAME, OP, REMOTE, V, T)                                                    \
  CW_SHMEM_CTX(                                                                               \
      void, NAME,                                                                             \
      (c.check_memory(static_cast<const T*>(REMOTE), nelems),                                 \
       c.check(c.on.OP(me, static_cast<T*>(dest), static_cast<const T*>(source), nelems, pe), \
               nelems)),                                                                      \
      V* dest, const V* source, size_t nelems, int pe)
#define STRIDED(NAME, OP, V, T)                                                           \
  CW_SHMEM_CTX(void, NAME,                                                                \
               (check_strided<T>(c, dst, sst, 1, nelems),                                 \
                c.check(c.on.OP(me, static_cast<T*>(dest), static_cast<const T*>(source), \
                                {dst, sst, 1}, nelems, pe),                               \
                        nelems)),                                                         \
               V* dest, const V* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)
#define BLOCKS(NAME, OP, V, T)                                                            \
  CW_SHMEM_CTX(void, NAME,                                                                \
               (check_strided<T>(c, dst, sst, bsize, nblocks),                            \
                c.check(c.on.OP(me, static_cast<T*>(dest), static_cast<const T*>(source), \
                                {dst, sst, bsize}, nblocks, pe),                          \
                        bsize * nblocks)),                                                \
               V* dest, const V* source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize,      \
               size_t nblocks, int pe)
#define PUT_SIGNAL(NAME, OP, V, T)                                                               \
  CW_SHMEM_CTX(                                                                                  \
      void, NAME,                                                                                \
      (c.check_memory(static_cast<const T*>(dest), nelems), c.check_memory(sig_addr),            \
       c.check(c.on.OP(me, nelems == 0 ? reinterpret_cast<T*>(sig_addr) : static_cast<T*>(dest), \
                       static_cast<const T*>(source), nelems, sig_addr, signal,                  \
                       signal_op(c, sig_op), pe))),                                              \
      V* dest, const V* source, size_t nelems, uint64_t* sig_addr, uint64_t signal, int sig_op,  \
      int pe)

#define TYPED(N, T)                                                                                \
  PUT_OR_GET(N##_put, put, dest, T, T)                                                             \
  PUT_OR_GET(N##_get, get, source, T, T)                                                           \
  PUT_OR_GET(N##_put_nbi, put_nbi, dest, T, T)                                                     \
  PUT_OR_GET(N##_get_nbi, get_nbi, source, T, T)                                                   \
  STRIDED(N##_iput, iput, T, T)                                                                    \
  STRIDED(N##_iget, iget, T, T)                                                                    \
  BLOCKS(N##_ibput, iput, T, T)                                                                    \
  BLOCKS(N##_ibget, iget, T, T)                                                                    \
  PUT_SIGNAL(N##_put_signal, put_signal, T, T)                                                     \
  PUT_SIGNAL(N##_put_signal_nbi, put_signal_nbi, T, T)                                             \
  CW_SHMEM_CTX(void, N##_p, (c.check_memory(dest), c.check(c.on.p(me, dest, value, pe))), T* dest, \
               T value, int pe)                                                                    \
  CW_SHMEM_CTX(T, N##_g, (get_one(c, source)), const T* source, int pe)
_SHMEM_RMA_TYPES(TYPED)

#define SIZED(S)                                            \
  PUT_OR_GET(put##S, put, dest, void, unit_##S)             \
  PUT_OR_GET(get##S, get, source, void, unit_##S)           \
  PUT_OR_GET(put##S##_nbi, put_nbi, dest, void, unit_##S)   \
  PUT_OR_GET(get##S##_nbi, get_nbi, source, void, unit_##S) \
  PUT_SIGNAL(put##S##_signal, put_signal, void, unit_##S)   \
  PUT_SIGNAL(put##S##_signal_nbi, put_signal_nbi, void, unit_##S)
_SHMEM_SIZES(SIZED)
SIZED(mem)

#define SIZED_STRIDED(S)                 \
  STRIDED(iput##S, iput, void, unit_##S) \
  STRIDED(iget##S, iget, void, unit_##S) \
  BLOCKS(ibput##S, iput, void, unit_##S) \
  BLOCKS(ibget##S, iget, void, unit_##S)
_SHMEM_SIZES(SIZED_STRIDED)

CW_SHMEM_CTX(void, signal_add,
             (c.check_memory(sig_addr), c.check(c.on.signal_add(me, sig_addr, signal, pe))),
             uint64_t* sig_addr, uint64_t signal, int pe)
CW_SHMEM_CTX(void, signal_set,
             (c.check_memory(sig_addr), c.check(c.on.signal_set(me, sig_addr, signal, pe))),
             uint64_t* sig_addr, uint64_t signal, int pe)
