// The matrix-product server's engine: by a thread, a warp and a block.
#include "../examples/servers/matmul.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "support/device.hpp"

namespace cw = crosswarp;
using namespace servers;

namespace {

enum class caller : std::uint8_t { thread, warp, block };

struct outcome {
  step_result step;
  int unlike;  ///< threads that got another result than the first
};

struct make_step {
  template <class G>
  CW_FN static void by(const G& g, const matmul& engine, text in, char* out, std::size_t room,
                       outcome* o) {
    const step_result mine = engine.step(g, in, out, room);
    const step_result first = g.broadcast(mine);
    const bool unlike = mine.consumed != first.consumed || mine.produced != first.produced ||
                        mine.close != first.close;
    const bool any = g.any(unlike);
    if (g.rank() == 0) *o = {mine, any ? 1 : 0};
  }
  CW_FN void operator()(const cw::device::kernel_context& ctx, matmul engine, const char* in,
                        std::size_t in_bytes, char* out, std::size_t room, caller c,
                        outcome* o) const {
    if (c == caller::block) {
      by(ctx.block(), engine, {in, in_bytes}, out, room, o);
    } else if (c == caller::warp) {
      by(ctx.warp(), engine, {in, in_bytes}, out, room, o);
    } else {
      by(ctx.thread(), engine, {in, in_bytes}, out, room, o);
    }
  }
};

struct result {
  step_result step;
  std::string out;
};

result ask(const matmul& engine, const std::string& in, caller c = caller::block,
           std::size_t room = 1U << 20U) {
  cw::stream s(test_device());
  // One byte off, as streams are.
  cw::buffer<char> from(s.device(), in.size() + 2);
  from.write(std::string(1, ' ') + in);
  cw::buffer<char> to(s.device(), room + 1);
  cw::buffer<outcome> o(s.device(), 1);
  const int threads = c == caller::block ? 64 : c == caller::warp ? 32 : 1;
  cw::launch(s, {.threads = threads}, make_step{}, engine, from.data() + 1, in.size(),
             to.data() + 1, room, c, o.data());
  s.sync();
  const outcome got = o.read()[0];
  EXPECT_EQ(got.unlike, 0);
  return {got.step, std::string(to.read().data() + 1, got.step.produced)};
}

template <class T>
constexpr matmul_type type_of = sizeof(T) == 8          ? matmul_type::f64
                                : std::is_integral_v<T> ? matmul_type::i32
                                                        : matmul_type::f32;

template <class T>
std::string bytes_of(const T* p, std::size_t n) {
  return {reinterpret_cast<const char*>(p), n * sizeof(T)};
}

template <class T>
struct problem {
  matmul_request head;
  std::vector<T> a;
  std::vector<T> b;

  problem(std::uint32_t m, std::uint32_t n, std::uint32_t k, std::uint32_t tag)
      : head{matmul_magic, type_of<T>, m, n, k, tag}, a(m * k), b(k * n) {
    std::mt19937 random(tag);
    for (T& x : a) x = static_cast<T>(static_cast<int>(random() % 2001) - 1000);
    for (T& x : b) x = static_cast<T>(static_cast<int>(random() % 2001) - 1000);
  }
  [[nodiscard]] std::string request() const {
    return bytes_of(&head, 1) + bytes_of(a.data(), a.size()) + bytes_of(b.data(), b.size());
  }
  [[nodiscard]] std::string answer() const {
    const matmul_answer h = {matmul_magic, matmul_status::ok, head.m, head.n, head.k, head.tag};
    std::vector<T> c(head.m * head.n);
    for (std::size_t i = 0; i < head.m; ++i) {
      for (std::size_t j = 0; j < head.n; ++j) {
        for (std::size_t l = 0; l < head.k; ++l) {
          c[i * head.n + j] += a[i * head.k + l] * b[l * head.n + j];
        }
      }
    }
    return bytes_of(&h, 1) + bytes_of(c.data(), c.size());
  }
};

template <class T>
void expect_products(caller c) {
  const problem<T> small(1, 1, 1, 7);
  const problem<T> odd(5, 17, 3, 8);
  const problem<T> wide(2, 33, 40, 9);
  const std::string in = small.request() + odd.request() + wide.request();
  const result r = ask(matmul(), in, c);
  EXPECT_TRUE(r.out == small.answer() + odd.answer() + wide.answer());
  EXPECT_EQ(r.step.consumed, in.size());
  EXPECT_FALSE(r.step.close);
}

// Whole numbers of this size are exact in all types, so that order does not matter.
TEST(Matmul, AThreadAWarpAndABlockAnswerAlike) {
  for (const caller c : {caller::thread, caller::warp, caller::block}) {
    expect_products<float>(c);
    expect_products<double>(c);
    expect_products<std::int32_t>(c);
  }
}

TEST(Matmul, WaitsForTheWholeRequest) {
  const problem<float> p(2, 2, 2, 1);
  const std::string in = p.request() + p.request();
  for (std::size_t cut = 0; cut < in.size(); ++cut) {
    const result r = ask(matmul(), in.substr(0, cut), caller::thread, 256);
    const std::size_t whole = cut / p.request().size();
    EXPECT_EQ(r.step.consumed, whole * p.request().size()) << cut;
    EXPECT_EQ(r.out, whole == 0 ? "" : p.answer()) << cut;
  }
}

TEST(Matmul, WaitsForRoom) {
  const problem<float> p(2, 2, 2, 1);
  const std::string in = p.request() + p.request();
  for (std::size_t room = 0; room <= 2 * p.answer().size(); ++room) {
    const result r = ask(matmul(), in, caller::thread, room);
    EXPECT_EQ(r.step.produced, room / p.answer().size() * p.answer().size()) << room;
  }
}

TEST(Matmul, RefusesAndCloses) {
  const auto refused = [](matmul_request q, matmul_status s) {
    const matmul_answer a = {matmul_magic, s, q.m, q.n, q.k, q.tag};
    const result r = ask(matmul({.request_bytes = 1000, .answer_bytes = 500}),
                         bytes_of(&q, 1) + "more", caller::warp);
    EXPECT_EQ(r.out, bytes_of(&a, 1));
    EXPECT_TRUE(r.step.close);
    EXPECT_EQ(r.step.consumed, sizeof(q) + 4);
  };
  constexpr auto f32 = matmul_type::f32;
  refused({1, f32, 1, 1, 1, 5}, matmul_status::not_a_request);
  refused({matmul_magic, static_cast<matmul_type>(9), 1, 1, 1, 5}, matmul_status::unknown_type);
  refused({matmul_magic, static_cast<matmul_type>(0), 1, 1, 1, 5}, matmul_status::unknown_type);
  refused({matmul_magic, f32, 0, 1, 1, 5}, matmul_status::bad_shape);
  refused({matmul_magic, f32, 1, 0, 1, 5}, matmul_status::bad_shape);
  refused({matmul_magic, f32, 1, 1, 0, 5}, matmul_status::bad_shape);
  refused({matmul_magic, f32, 1, 1, 123, 5}, matmul_status::bad_shape);  // 1008 bytes
  refused({matmul_magic, f32, 11, 11, 1, 5}, matmul_status::bad_shape);  // answered by 508
  refused({matmul_magic, f32, ~0U, ~0U, ~0U, 5}, matmul_status::bad_shape);
  refused({matmul_magic, f32, 1U << 31U, 2, 1U << 31U, 5}, matmul_status::bad_shape);
}

}  // namespace
