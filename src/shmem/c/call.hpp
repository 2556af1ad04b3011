// What the C functions are made of: their two names, and what becomes of a status.
#pragma once

#define _SHMEM_KEEP_TABLES
#include <shmem.h>

#include <cstddef>
#include <limits>
#include <string>

#include "crosswarp/shmem.hpp"

struct shmem_ctx_object {
  crosswarp::device::shmem view;
  shmem_team_t team;
};

namespace crosswarp::shmem_c {

inline constexpr device::thread_group me{};

/// The default context: all PEs. Before shmem_init nobody is in it, so that all fails.
extern device::shmem everybody;
/// Of SHMEM_CTX_INVALID and SHMEM_TEAM_INVALID.
extern const device::shmem nobody;

/// Whether memory could be so long: the product of all, in bytes.
template <class... N>
constexpr bool fits(N... factors) {
  std::size_t all = 1;
  const bool wraps = (__builtin_mul_overflow(all, static_cast<std::size_t>(factors), &all) || ...);
  return !wraps && all <= static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
}
constexpr std::size_t length_of(std::ptrdiff_t stride) {
  return stride < 0 ? -static_cast<std::size_t>(stride) : static_cast<std::size_t>(stride);
}

inline const device::shmem& view_of(shmem_ctx_t ctx) {
  if (ctx == SHMEM_CTX_DEFAULT) return everybody;
  return ctx == SHMEM_CTX_INVALID ? nobody : ctx->view;
}

/// A call under way. Functions of OpenSHMEM have nobody to report to: a failure ends the job.
struct call {
  static constexpr int no_pe = std::numeric_limits<int>::min();

  const device::shmem& on;
  const char* name;
  int pe = no_pe;

  /// Of a call for all PEs, which would find nobody to wait for.
  void check_started() const {
    if (on.n_pes() == 0) [[unlikely]] {
      fail(status::invalid);
    }
  }
  void check(status s) const {
    if (s != status::ok) [[unlikely]] {
      fail(s);
    }
  }
  /// Of a call that moves `n` elements: where none move, pointers may be anything.
  void check(status s, std::size_t n) const {
    if (s != status::ok && !(n == 0 && s == status::invalid && on.is_accessible(pe))) [[unlikely]] {
      fail(s);
    }
  }
  /// Of a call that moves `n` elements of T, `times` over: what follows may count their bytes.
  template <class T>
  void check_length(std::size_t n, std::size_t times = 1) const {
    if (!fits(n, sizeof(T), times)) [[unlikely]] {
      fail_by_length(n, sizeof(T));
    }
  }
  /// Of a call that works on `n` elements of everybody's memory; in checked builds also that this
  /// is not memory which was freed. What reaches beyond its end is left alone: programs do that.
  template <class T>
  void check_memory(const T* at, std::size_t n = 1) const {
    check_length<T>(n);
    if constexpr (CROSSWARP_CHECKED != 0) {
      if (n > 0) check_allocated(at);
    }
  }
  void check_allocated(const void* at) const;
  [[noreturn, gnu::cold]] void fail(status s) const;
  /// `of`: what else tells this call from others.
  [[noreturn, gnu::cold]] void fail(status s, const std::string& of,
                                    const std::string& why_invalid) const;
  [[noreturn, gnu::cold]] void fail_by_length(std::size_t n, std::size_t size) const;
};

/// Says why on stderr and ends the job.
[[noreturn, gnu::cold]] void give_up(const char* name, const char* why);

inline device::compare comparison(const call& c, int cmp) {
  if (cmp < SHMEM_CMP_EQ || cmp > SHMEM_CMP_LE) give_up(c.name, "no such comparison");
  return static_cast<device::compare>(cmp);
}

}  // namespace crosswarp::shmem_c

// shmem_NAME is a weak alias of pshmem_NAME, whose body follows.
#define CW_SHMEM_ALIASED(R, ALIAS, NAME, ...)                          \
  extern "C" R ALIAS(__VA_ARGS__) __attribute__((weak, alias(#NAME))); \
  extern "C" R NAME(__VA_ARGS__)
#define CW_SHMEM(R, NAME, ...) CW_SHMEM_ALIASED(R, shmem_##NAME, pshmem_##NAME, __VA_ARGS__)
#define CW_SHMEM_OLD(R, NAME, ...) CW_SHMEM_ALIASED(R, NAME, p##NAME, __VA_ARGS__)

// A function towards `pe`, without and with a context; RESULT is an expression in parentheses in
// which `c` is the call.
#define CW_SHMEM_CTX(R, NAME, RESULT, ...)                                                      \
  CW_SHMEM(R, NAME, __VA_ARGS__) {                                                              \
    const crosswarp::shmem_c::call c{crosswarp::shmem_c::everybody, "shmem_" #NAME, pe};        \
    return RESULT;                                                                              \
  }                                                                                             \
  CW_SHMEM(R, ctx_##NAME, shmem_ctx_t ctx, __VA_ARGS__) {                                       \
    const crosswarp::shmem_c::call c{crosswarp::shmem_c::view_of(ctx), "shmem_ctx_" #NAME, pe}; \
    return RESULT;                                                                              \
  }
