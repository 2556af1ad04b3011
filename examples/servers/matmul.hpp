// The engine of the matrix-product server. A request is a head and two matrices, the answer a head
// and their product; all numbers are little-endian, matrices go row by row. The product is computed
// by the whole group that calls.
#pragma once

#include "bytes.hpp"

namespace servers {

inline constexpr std::uint32_t matmul_magic = 0x4d4d5743;  // "CWMM"

enum class matmul_type : std::uint32_t { f32 = 1, f64 = 2, i32 = 3 };

enum class matmul_status : std::uint32_t {
  ok = 0,
  not_a_request = 1,  ///< another magic
  unknown_type = 2,
  bad_shape = 3,  ///< a side of 0, or more than the server takes
};

/// Followed by an m x k matrix and a k x n matrix.
struct matmul_request {
  std::uint32_t magic;
  matmul_type type;
  std::uint32_t m;
  std::uint32_t n;
  std::uint32_t k;
  std::uint32_t tag;  ///< the answer has the same
};
/// Followed by an m x n matrix when `status` is ok. After any other the connection is closed.
struct matmul_answer {
  std::uint32_t magic;
  matmul_status status;
  std::uint32_t m;
  std::uint32_t n;
  std::uint32_t k;
  std::uint32_t tag;
};

struct matmul_options {
  /// Longest request and longest answer; `in` and `out` must come to have as much room.
  std::uint64_t request_bytes = 1U << 20U;
  std::uint64_t answer_bytes = 1U << 20U;
};

class matmul {
 public:
  matmul() = default;
  CW_FN explicit matmul(const matmul_options& o) noexcept : options_(o) {}

  /// Answers the complete requests at the start of `in` whose answers fit into `out`.
  /// Visibility: `out` is visible to all of `g`.
  /// Callers:    all threads of `g`, same arguments; the same result to all.
  template <dev::group G>
  CW_FN step_result step(const G& g, text in, char* out, std::size_t room) const noexcept {
    step_result r;
    while (!r.close && in.size - r.consumed >= sizeof(matmul_request)) {
      matmul_request q;
      memcpy(&q, in.data + r.consumed, sizeof(q));
      const matmul_status s = judge(q);
      const std::uint64_t body = s == matmul_status::ok ? bytes(q.type, q.m, q.n) : 0;
      if (sizeof(matmul_answer) + body > room - r.produced) break;
      if (s == matmul_status::ok && in.size - r.consumed < request_bytes(q)) break;
      char* const to = out + r.produced;
      const char* const from = in.data + r.consumed + sizeof(q);
      if (g.rank() == 0) {
        const matmul_answer a = {matmul_magic, s, q.m, q.n, q.k, q.tag};
        memcpy(to, &a, sizeof(a));
      }
      if (s == matmul_status::ok) multiply(g, q, from, to + sizeof(matmul_answer));
      r.produced += sizeof(matmul_answer) + static_cast<std::size_t>(body);
      r.close = s != matmul_status::ok;
      r.consumed = r.close ? in.size : r.consumed + static_cast<std::size_t>(request_bytes(q));
    }
    g.sync();
    return r;
  }

 private:
  CW_FN static std::uint64_t bytes(matmul_type t, std::uint64_t rows,
                                   std::uint64_t columns) noexcept {
    return rows * columns * (t == matmul_type::f64 ? 8 : 4);
  }
  /// Of a request whose sides are not too long.
  CW_FN static std::uint64_t request_bytes(const matmul_request& q) noexcept {
    return sizeof(q) + bytes(q.type, q.m, q.k) + bytes(q.type, q.k, q.n);
  }
  [[nodiscard]] CW_FN matmul_status judge(const matmul_request& q) const noexcept {
    constexpr std::uint32_t longest = 1U << 24U;  // sizes stay below 2^64
    if (q.magic != matmul_magic) return matmul_status::not_a_request;
    if (q.type != matmul_type::f32 && q.type != matmul_type::f64 && q.type != matmul_type::i32) {
      return matmul_status::unknown_type;
    }
    if (q.m == 0 || q.n == 0 || q.k == 0 || q.m > longest || q.n > longest || q.k > longest ||
        request_bytes(q) > options_.request_bytes ||
        sizeof(matmul_answer) + bytes(q.type, q.m, q.n) > options_.answer_bytes) {
      return matmul_status::bad_shape;
    }
    return matmul_status::ok;
  }

  template <class G>
  CW_FN static void multiply(const G& g, const matmul_request& q, const char* from,
                             char* to) noexcept {
    const char* const b = from + bytes(q.type, q.m, q.k);
    switch (q.type) {
      case matmul_type::f32:
        return multiply_as<float, float>(g, q, from, b, to);
      case matmul_type::f64:
        return multiply_as<double, double>(g, q, from, b, to);
      case matmul_type::i32:
        return multiply_as<std::int32_t, std::uint32_t>(g, q, from, b, to);
    }
  }
  /// Sums are made in `Sum`, in ascending order: the same bits whatever the group.
  template <class T, class Sum, class G>
  CW_FN static void multiply_as(const G& g, const matmul_request& q, const char* a, const char* b,
                                char* to) noexcept {
    const std::uint64_t count = std::uint64_t{q.m} * q.n;
    for (auto i = static_cast<std::uint64_t>(g.rank()); i < count;
         i += static_cast<std::uint64_t>(g.size())) {
      const std::uint64_t row = i / q.n;
      const std::uint64_t column = i % q.n;
      Sum sum = 0;
      for (std::uint64_t j = 0; j < q.k; ++j) {
        sum += static_cast<Sum>(load<T>(a, row * q.k + j)) *
               static_cast<Sum>(load<T>(b, j * q.n + column));
      }
      const T value = static_cast<T>(sum);
      memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  }
  /// Streams have no alignment.
  template <class T>
  CW_FN static T load(const char* from, std::uint64_t i) noexcept {
    T value;
    memcpy(&value, from + i * sizeof(T), sizeof(T));
    return value;
  }

  matmul_options options_;
};

}  // namespace servers
