// The proxy's words in MPI's.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>

#include "proxy/engine.hpp"

namespace crosswarp::mpi {

using proxy_impl::element;
using proxy_impl::reduction;

inline status outcome_of(int code) noexcept {
  if (code == MPI_SUCCESS) return status::ok;
  int kind = MPI_ERR_OTHER;
  MPI_Error_class(code, &kind);
  switch (kind) {
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_DISP:
    case MPI_ERR_OP:
    case MPI_ERR_RANK:
    case MPI_ERR_RMA_RANGE:
    case MPI_ERR_TYPE:
    case MPI_ERR_WIN:
      return status::invalid;
    case MPI_ERR_UNSUPPORTED_OPERATION:
      return status::unsupported;
    default:
      return status::unreachable;  // MPI does not say whether the rank or the way to it is gone
  }
}

inline MPI_Op native(reduction op) noexcept {
  switch (op) {
    case reduction::sum:
      return MPI_SUM;
    case reduction::prod:
      return MPI_PROD;
    case reduction::min:
      return MPI_MIN;
    case reduction::max:
      return MPI_MAX;
    case reduction::bit_and:
      return MPI_BAND;
    case reduction::bit_or:
      return MPI_BOR;
    case reduction::bit_xor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

struct element_type {
  MPI_Datatype type;
  std::size_t bytes;
};

inline element_type native(element e) noexcept {
  switch (e) {
    case element::i8:
      return {MPI_INT8_T, 1};
    case element::i16:
      return {MPI_INT16_T, 2};
    case element::i32:
      return {MPI_INT32_T, 4};
    case element::i64:
      return {MPI_INT64_T, 8};
    case element::u8:
      return {MPI_UINT8_T, 1};
    case element::u16:
      return {MPI_UINT16_T, 2};
    case element::u32:
      return {MPI_UINT32_T, 4};
    case element::u64:
      return {MPI_UINT64_T, 8};
    case element::f32:
      return {MPI_FLOAT, 4};
    case element::f64:
      return {MPI_DOUBLE, 8};
  }
  return {MPI_DATATYPE_NULL, 0};
}

inline bool on_bits(reduction op) noexcept {
  return op == reduction::bit_and || op == reduction::bit_or || op == reduction::bit_xor;
}

}  // namespace crosswarp::mpi
