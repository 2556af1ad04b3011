// The host believes nothing that a kernel writes about a socket.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "socket/slot.hpp"

namespace dev = crosswarp::device::socket;
using crosswarp::socket_impl::mark;
using crosswarp::socket_impl::ring_pool;
using crosswarp::socket_impl::slot;

namespace {

constexpr std::uint64_t page = 4096;

/// One place of a table, and what a kernel would write.
struct place {
  explicit place(unsigned most_log2 = 14, std::size_t bytes = 64 * page)
      : rings(bytes), pool(rings.data(), rings.size()), s(memory(), pool, {12, most_log2}, 0) {}

  const dev::memory& memory() {
    m.sockets = 1;
    m.state = &news;
    m.called = &names;
    m.activity = &activity;
    m.bells = &bell;
    m.drained = &drained;
    m.moved = &moved;
    m.rings = rings.data();
    return m;
  }
  [[nodiscard]] unsigned life() const { return dev::life_bits(s.who().generation()); }
  [[nodiscard]] bool ring(std::uint64_t position, unsigned flags = dev::taken) {
    return s.hear(mark(position, flags | life()));
  }
  /// As accept() does.
  void take() {
    drained = news.start;
    moved = mark::of(news.sent).position() << 8U | dev::ring_place::of(news.send_ring).epoch();
    EXPECT_TRUE(ring(mark::of(news.sent).position()));
  }
  [[nodiscard]] std::uint64_t sent() const { return mark::of(news.sent).position(); }
  [[nodiscard]] bool inside(std::span<iovec> all) const {
    for (const iovec& v : all) {
      const auto* const p = static_cast<const std::byte*>(v.iov_base);
      if (p < rings.data() || p + v.iov_len > rings.data() + rings.size()) return false;
    }
    return true;
  }
  static std::uint64_t bytes(std::span<iovec> all) {
    std::uint64_t n = 0;
    for (const iovec& v : all) n += v.iov_len;
    return n;
  }

  std::vector<std::byte> rings;
  dev::news news{};
  dev::names names{};
  std::uint64_t activity = 0;
  std::uint64_t bell = 0;
  std::uint64_t drained = 0;
  std::uint64_t moved = 0;
  dev::memory m;
  ring_pool pool;
  slot s;
};

TEST(SocketSlot, RefusesPositionsThatCannotBe) {
  place p;
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  const std::uint64_t at = p.sent();
  EXPECT_TRUE(p.ring(at + 10));
  EXPECT_EQ(place::bytes(p.s.to_send(100)), 10U);
  EXPECT_FALSE(p.ring(at + 9)) << "goes back";
  EXPECT_FALSE(p.ring(at + page + 1)) << "more than the ring holds";
  EXPECT_FALSE(p.ring(~std::uint64_t{0} >> 8U));
  EXPECT_EQ(place::bytes(p.s.to_send(1U << 30U)), 10U) << "what was right before stays";
  EXPECT_TRUE(p.ring(at + page));
}

TEST(SocketSlot, RefusesToHaveReadWhatHasNotCome) {
  place p;
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  p.s.note_received(100);
  p.drained = p.news.start + 100;
  EXPECT_TRUE(p.s.look_at_drained());
  EXPECT_FALSE(p.s.has_unread());
  p.drained = p.news.start + 101;
  EXPECT_FALSE(p.s.look_at_drained());
}

TEST(SocketSlot, HearsNothingOfAnotherLife) {
  place p;
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  ASSERT_TRUE(p.ring(p.sent() + 5, dev::taken | dev::closed));
  EXPECT_TRUE(p.s.is_closed());
  p.s.note_sent(5);
  p.s.end();
  const unsigned before = p.life();
  ASSERT_TRUE(p.s.begin(false));
  EXPECT_TRUE(p.s.hear(mark(p.sent(), dev::taken | dev::closed | before)));
  EXPECT_FALSE(p.s.is_closed());
  EXPECT_FALSE(p.s.is_taken());
}

TEST(SocketSlot, WhatIsBrokenCanStillBeClosed) {
  place p;
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  EXPECT_FALSE(p.ring(p.sent() + 100'000));
  p.s.break_send(EPROTO);
  EXPECT_TRUE(p.ring(p.sent() + 200'000, dev::taken | dev::closed));
  EXPECT_TRUE(p.s.is_closed());
  EXPECT_FALSE(p.s.has_to_send());
  p.s.end();
  EXPECT_EQ(p.pool.bytes_in_use(), 0U);
}

TEST(SocketSlot, AKernelThatMovesWhereItCannotIsRefused) {
  for (const std::int64_t off : {-1, 1, 1'000'000}) {
    place p;
    ASSERT_TRUE(p.s.begin(false));
    p.take();
    const std::uint64_t at = p.sent();
    ASSERT_TRUE(p.ring(at + page));  // full: a larger ring is offered
    const auto offered = dev::ring_place::of(p.news.send_ring);
    ASSERT_GT(offered.bytes(), page);
    p.moved = (at + page + static_cast<std::uint64_t>(off)) << 8U | offered.epoch();
    EXPECT_FALSE(p.ring(at + page)) << off;
  }
}

TEST(SocketSlot, BytesAroundAMoveKeepTheirOrder) {
  place p;
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  const std::uint64_t at = p.sent();
  const auto first = dev::ring_place::of(p.news.send_ring);
  std::memset(p.rings.data() + first.offset(), 'a', page);
  ASSERT_TRUE(p.ring(at + page));
  const auto second = dev::ring_place::of(p.news.send_ring);
  for (std::uint64_t i = 0; i < 100; ++i) {
    p.rings[second.offset() + ((at + page + i) & (second.bytes() - 1))] = std::byte{'b'};
  }
  p.moved = (at + page) << 8U | second.epoch();
  ASSERT_TRUE(p.ring(at + page + 100));
  std::string all;
  while (p.s.has_to_send()) {
    std::uint64_t n = 0;
    for (const iovec& v : p.s.to_send(1000)) {
      all.append(static_cast<const char*>(v.iov_base), v.iov_len);
      n += v.iov_len;
    }
    ASSERT_GT(n, 0U);
    p.s.note_sent(n);
  }
  EXPECT_EQ(all, std::string(page, 'a') + std::string(100, 'b'));
}

/// Whatever a kernel writes, the host's spans stay in the rings, and all of these come back.
TEST(SocketSlot, AnythingMayBeWritten) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    place p(15, 24 * page);
    std::uint64_t at = 0;
    for (int life = 0; life < 3; ++life) {
      ASSERT_TRUE(p.s.begin(false));
      p.take();
      at = p.sent();
      for (int i = 0; i < 60; ++i) {
        const auto some = [&] {
          const std::uint64_t near[] = {
              at, at + 1, at + page, at + random() % (3 * page), at - 1, random() >> 8U};
          return near[random() % std::size(near)];
        };
        p.moved = some() << 8U | (random() % 2 == 0 ? dev::ring_place::of(p.news.send_ring).epoch()
                                                    : random() & 0xffU);
        p.drained = random() % 4 == 0 ? random() : p.drained + random() % page;
        const std::uint64_t head = some();
        if (p.ring(head) && !p.s.is_broken()) at = head;
        if (!p.s.look_at_drained() && random() % 2 == 0) p.s.break_send(EPROTO);
        const auto out = p.s.to_send(1 + random() % (4 * page));
        ASSERT_TRUE(p.inside(out));
        if (!out.empty() && random() % 2 == 0) p.s.note_sent(1 + random() % place::bytes(out));
        const auto in = p.s.receive_space(1 + random() % (4 * page));
        ASSERT_TRUE(p.inside(in));
        if (!in.empty() && random() % 2 == 0) p.s.note_received(1 + random() % place::bytes(in));
      }
      p.s.end();
      ASSERT_EQ(p.pool.bytes_in_use(), 0U);
    }
  }
}

TEST(SocketSlot, GrowthLeavesFirstRingsForPlacesThatAreFree) {
  place p(16, 32 * page);
  slot other(p.m, p.pool, {12, 16}, 0);
  ASSERT_TRUE(p.s.begin(false));
  p.take();
  // As much as comes, and no kernel that reads it.
  for (int i = 0; i < 40; ++i) {
    if (const auto in = p.s.receive_space(1U << 20U); !in.empty()) {
      p.s.note_received(place::bytes(in));
    }
  }
  EXPECT_GT(p.pool.bytes_in_use(), 2 * page) << "there was memory to grow into";
  for (auto r = p.pool.take_larger(12); r; r = p.pool.take_larger(12)) {
  }
  EXPECT_EQ(p.pool.bytes_in_use(), 30 * page);
  EXPECT_TRUE(other.begin(false)) << "there is no ring left for who comes";
}

TEST(SocketSlot, BytesAreWhereKernelsLookBeforeTheyAreToldOf) {
  std::vector<std::byte> image(16 * page);
  crosswarp::socket_impl::stager staged(crosswarp::device_ref::cpu(), image.data(), image.size());
  ring_pool pool(image.data(), image.size(), &staged);
  place words;
  slot s(words.m, pool, {12, 12}, 0);
  ASSERT_TRUE(s.begin(false));
  const auto bell = [&](std::uint64_t at, unsigned flags = dev::taken) {
    return s.hear(mark(at, flags | dev::life_bits(s.who().generation())));
  };
  words.drained = words.news.start;
  const std::byte* const in = staged.rings() + dev::ring_place::of(words.news.ring[0]).offset();
  std::byte* const out = staged.rings() + dev::ring_place::of(words.news.send_ring).offset();
  ASSERT_TRUE(bell(words.sent()));
  // Twice around, in pieces that do not fit evenly.
  constexpr std::uint64_t piece = 1500;
  for (unsigned k = 0; k < 6; ++k) {
    const std::uint64_t at = words.news.start + k * piece;
    std::uint64_t n = 0;
    for (const iovec& v : s.receive_space(piece)) {
      std::memset(v.iov_base, static_cast<int>('a' + k), v.iov_len);
      n += v.iov_len;
    }
    ASSERT_EQ(n, piece);
    s.note_received(n);
    EXPECT_EQ(in[at & (page - 1)], std::byte('a' + k));
    EXPECT_EQ(in[(at + piece - 1) & (page - 1)], std::byte('a' + k));
    words.drained = at + piece;
    ASSERT_TRUE(s.look_at_drained());

    const std::uint64_t head = words.sent();
    for (std::uint64_t i = 0; i < piece; ++i) out[(head + i) & (page - 1)] = std::byte('A' + k);
    ASSERT_TRUE(bell(head + piece));
    for (const std::uint64_t most : {std::uint64_t{1000}, std::uint64_t{500}}) {
      for (const iovec& v : s.to_send(most)) {
        const auto* const p = static_cast<const char*>(v.iov_base);
        EXPECT_EQ(std::string(p, v.iov_len), std::string(v.iov_len, static_cast<char>('A' + k)));
      }
      s.note_sent(most);
    }
    EXPECT_FALSE(s.has_to_send());
  }
  s.end();
  EXPECT_EQ(std::vector<std::byte>(staged.rings(), staged.rings() + image.size()),
            std::vector<std::byte>(image.size()))
      << "the next one finds nothing";
}

// ---- memory for rings

TEST(RingPool, GivesEveryByteOnceAndJoinsWhatComesBack) {
  std::vector<std::byte> memory(13 * page);
  ring_pool pool(memory.data(), memory.size());
  std::vector<std::uint64_t> small;
  for (auto r = pool.take(12); r; r = pool.take(12)) small.push_back(*r);
  EXPECT_EQ(small.size(), 13U);
  EXPECT_EQ(std::set<std::uint64_t>(small.begin(), small.end()).size(), 13U);
  EXPECT_EQ(pool.bytes_in_use(), 13 * page);
  for (const std::uint64_t r : small) pool.give_back(r, 12);
  EXPECT_EQ(pool.bytes_in_use(), 0U);
  EXPECT_TRUE(pool.take(15)) << "eight of them lie together again";
  EXPECT_TRUE(pool.take(14));
  EXPECT_FALSE(pool.take(13));
  EXPECT_TRUE(pool.take(12));
}

TEST(RingPool, AtMostHalfIsKeptFromThoseThatGrow) {
  std::vector<std::byte> memory(16 * page);
  ring_pool pool(memory.data(), memory.size());
  pool.keep(static_cast<std::int64_t>(1000 * page));
  EXPECT_TRUE(pool.take_larger(15));
  EXPECT_FALSE(pool.take_larger(12));
  EXPECT_TRUE(pool.take(15));
}

TEST(RingPool, WhatComesBackIsZero) {
  std::vector<std::byte> memory(page);
  ring_pool pool(memory.data(), memory.size());
  const auto r = pool.take(12);
  std::memset(pool.at(*r), 7, page);
  pool.give_back(*r, 12);
  EXPECT_EQ(memory, std::vector<std::byte>(page));
}

}  // namespace
