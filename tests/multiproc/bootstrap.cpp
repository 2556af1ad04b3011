// The pieces that a job starts from: proofs, messages from anybody, meetings that somebody misses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "crosswarp/world.hpp"
#include "test_star.hpp"
#include "world/fd_exchange.hpp"

namespace cw = crosswarp;
using namespace cw::world_impl;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using testing::HasSubstr;
using clock_type = std::chrono::steady_clock;

bytes numbers(std::size_t count) {
  bytes b(count);
  for (std::size_t i = 0; i < count; ++i) b[i] = std::byte(i);
  return b;
}

// ---- proofs

TEST(Proof, BeginsAsSipHashDoes) {
  // From the paper: the key 00..0f and the message 00..0e.
  secret_key key{};
  const bytes k = numbers(key.size());
  std::copy(k.begin(), k.end(), key.begin());
  const auto first_half = [&](const bytes& statement) {
    const proof p = prove(key, statement);
    std::uint64_t v = 0;
    std::memcpy(&v, p.data(), sizeof(v));
    return v;
  };
  EXPECT_EQ(first_half(numbers(15)), 0xa129ca6149be45e5ULL);
  EXPECT_EQ(first_half({}), 0x726fdb47dd0e0e31ULL);
}

TEST(Proof, EveryBitOfStatementAndSecretMatters) {
  const secret_key secret = make_secret();
  const bytes statement = numbers(37);
  const proof p = prove(secret, statement);
  EXPECT_TRUE(equal(p, prove(secret, statement)));
  for (std::size_t bit = 0; bit < statement.size() * 8; ++bit) {
    bytes other = statement;
    other[bit / 8] ^= std::byte(1U << (bit % 8));
    EXPECT_FALSE(equal(p, prove(secret, other))) << "bit " << bit;
  }
  for (std::size_t bit = 0; bit < secret.size() * 8; ++bit) {
    secret_key other = secret;
    other[bit / 8] ^= std::byte(1U << (bit % 8));
    EXPECT_FALSE(equal(p, prove(other, statement))) << "bit " << bit;
  }
}

TEST(Proof, ZerosAtTheEndMatter) {
  const secret_key secret = make_secret();
  std::vector<proof> seen;
  for (std::size_t n = 0; n < 40; ++n) {
    seen.push_back(prove(secret, bytes(n)));
    for (std::size_t i = 0; i < n; ++i) EXPECT_FALSE(equal(seen[i], seen[n])) << i << " and " << n;
  }
}

TEST(Proof, EqualComparesEveryByte) {
  const proof p = prove(make_secret(), {});
  for (std::size_t i = 0; i < p.size(); ++i) {
    for (const unsigned flip : {1U, 0x80U}) {
      proof q = p;
      q[i] ^= std::byte(flip);
      EXPECT_FALSE(equal(p, q));
    }
  }
}

TEST(Secret, SurvivesTextAndOnlyRightText) {
  const secret_key s = make_secret();
  EXPECT_EQ(secret_from_hex(to_hex(s)), s);
  EXPECT_NE(make_secret(), s);
  const std::string good = to_hex(s);
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "0", good.substr(1) + "g", good.substr(1) + "A",
        good.substr(1) + " ", "0x" + good.substr(2)}) {
    EXPECT_THROW(secret_from_hex(bad), cw::error) << "'" << bad << "'";
  }
}

// ---- messages from anybody

template <class Read>
void expect_refused(const bytes& data, Read read) {
  unpacker u(data);
  try {
    read(u);
    ADD_FAILURE() << "accepted";
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::refused) << e.what();
  }
}

TEST(Unpacker, RefusesWhatIsCutShort) {
  const bytes whole = packer().u32(1).u64(2).text("three").take();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)},
                   [](unpacker& u) {
                     (void)u.u32();
                     (void)u.u64();
                     (void)u.text();
                   });
  }
}

TEST(Unpacker, AllocatesNothingForALengthThatIsALie) {
  // Any of these allocated would throw length_error or bad_alloc rather than error(refused).
  for (const std::uint64_t lie : {~0ULL, ~0ULL >> 1U, 1ULL << 62U, 1ULL << 40U, 5ULL}) {
    const bytes data = packer().u64(lie).u32(0).take();
    expect_refused(data, [](unpacker& u) { (void)u.blob(); });
    expect_refused(data, [](unpacker& u) { (void)u.text(); });
  }
}

TEST(Decode, TakesWholeFramesInWhateverPiecesTheyCome) {
  const frame a{7, numbers(10)};
  const frame b{8, {}};
  bytes stream = encode(a);
  const bytes more = encode(b);
  stream.insert(stream.end(), more.begin(), more.end());
  bytes in;
  std::vector<frame> out;
  for (const std::byte x : stream) {
    in.push_back(x);
    for (frame f; decode(in, f, 256);) out.push_back(f);
  }
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].type, 7U);
  EXPECT_EQ(out[0].body, a.body);
  EXPECT_EQ(out[1].type, 8U);
  EXPECT_TRUE(out[1].body.empty());
  EXPECT_TRUE(in.empty());
}

TEST(Decode, RefusesMoreThanTheLimitBeforeItComes) {
  for (const std::uint32_t length : {257U, 1U << 30U, ~0U}) {
    bytes in = packer().u32(length).u32(join).take();
    frame f;
    EXPECT_THROW(decode(in, f, 256), cw::error) << length;
  }
  bytes in = packer().u32(256).u32(join).take();
  frame f;
  EXPECT_FALSE(decode(in, f, 256)) << "may still come";
}

TEST(Decode, AnyBytesAreFramesOrRefused) {
  std::mt19937_64 random(20240613);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    bytes in = random_bytes(random, random() % 64);
    // Half of them with a length that could be true.
    if (i % 2 == 0 && in.size() >= 4) in[1] = in[2] = in[3] = std::byte{0};
    const std::size_t before = in.size();
    try {
      std::size_t taken = 0;
      for (frame f; decode(in, f, stranger_limit);) {
        taken += frame_header + f.body.size();
        unpacker u(f.body);
        (void)u.u32();
        (void)u.blob();
        (void)u.text();
      }
      EXPECT_EQ(taken + in.size(), before);
    } catch (const cw::error& e) {
      ++refused;
      ASSERT_EQ(e.code(), cw::errc::refused) << e.what();
    }
  }
  EXPECT_GT(refused, 1000);
}

struct socket_pair {
  descriptor a, b;
  socket_pair() {
    int s[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) == 0) {
      a = descriptor(s[0]);
      b = descriptor(s[1]);
    }
  }
};

cw::errc receive_error(const socket_pair& s, milliseconds limit) {
  try {
    (void)receive_frame(s.b.get(), stranger_limit, after(limit));
  } catch (const cw::error& e) {
    return e.code();
  }
  return cw::errc::system;
}

TEST(ReceiveFrame, EndsWhateverTheOtherSideDoes) {
  const socket_pair silent;
  EXPECT_EQ(receive_error(silent, milliseconds(50)), cw::errc::timeout);
  const socket_pair half;
  send_all(half.a.get(), numbers(5), after(seconds(1)));
  EXPECT_EQ(receive_error(half, milliseconds(50)), cw::errc::timeout);
  const socket_pair liar;
  send_all(liar.a.get(), packer().u32(~0U).u32(1).take(), after(seconds(1)));
  EXPECT_EQ(receive_error(liar, seconds(5)), cw::errc::refused);
  socket_pair gone;
  send_all(gone.a.get(), packer().u32(100).u32(1).u64(5).take(), after(seconds(1)));
  gone.a.reset();
  EXPECT_EQ(receive_error(gone, seconds(5)), cw::errc::peer_lost);
}

// ---- meetings

/// Ranks in this process, meeting in one of two ways.
class Meeting : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::shared_ptr<bootstrap>> make(int size) {
    if (GetParam() == std::string("threads")) return make_local_bootstraps(size);
    star_ = std::make_unique<star>(size);
    std::vector<std::shared_ptr<bootstrap>> all;
    for (int r = 0; r < size; ++r) all.push_back(star_->join(r));
    return all;
  }
  std::unique_ptr<star> star_;
};

/// Runs `body(rank)` for each of `ranks` at once.
void at_once(const std::vector<int>& ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (const int r : ranks) threads.emplace_back(body, r);
  for (std::thread& t : threads) t.join();
}

TEST_P(Meeting, GathersByRank) {
  const auto boots = make(3);
  at_once({0, 1, 2}, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    for (std::size_t round = 0; round < 20; ++round) {
      const auto all = boots[i]->allgather(bytes(i * 1000 + round, std::byte(r)), seconds(20));
      ASSERT_EQ(all.size(), 3U);
      for (std::size_t q = 0; q < 3; ++q) EXPECT_EQ(all[q], bytes(q * 1000 + round, std::byte(q)));
    }
  });
}

TEST_P(Meeting, AbsentRankIsNamedWhenTheDeadlinePasses) {
  for (const int absent : {0, 1, 2}) {
    const auto boots = make(3);
    std::vector<int> present;
    for (const int r : {0, 1, 2}) {
      if (r != absent) present.push_back(r);
    }
    at_once(present, [&](int r) {
      const auto start = clock_type::now();
      try {
        boots[static_cast<std::size_t>(r)]->allgather({}, milliseconds(200));
        ADD_FAILURE() << "came back";
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::timeout) << e.what();
        EXPECT_EQ(e.peer(), absent) << e.what();
      }
      EXPECT_LT(clock_type::now() - start, seconds(4));
    });
  }
}

TEST_P(Meeting, RanksThatGaveUpMeetAgainLater) {
  const auto boots = make(2);
  EXPECT_THROW(boots[0]->allgather({}, milliseconds(50)), cw::error);
  // The late one learns that its round is over, too.
  EXPECT_THROW(boots[1]->allgather({}, milliseconds(50)), cw::error);
  at_once({0, 1}, [&](int r) {
    EXPECT_NO_THROW(boots[static_cast<std::size_t>(r)]->allgather({}, seconds(20)));
  });
}

TEST_P(Meeting, MissingKeyEndsWithATimeout) {
  const auto boots = make(2);
  try {
    (void)boots[0]->get("nothing", milliseconds(100));
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::timeout);
    EXPECT_THAT(e.what(), HasSubstr("nothing"));
  }
}

TEST_P(Meeting, FailureEndsAllWaitsAndTheFirstReportCounts) {
  const auto boots = make(3);
  at_once({0, 1, 2}, [&](int r) {
    const auto& boot = boots[static_cast<std::size_t>(r)];
    if (r == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      boot->fail({cw::status::aborted, 2, "had enough"});
      return;
    }
    try {
      r == 0 ? static_cast<void>(boot->allgather({}, seconds(20)))
             : static_cast<void>(boot->get("nothing", seconds(20)));
      ADD_FAILURE();
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::aborted);
      EXPECT_EQ(e.peer(), 2);
      EXPECT_THAT(e.what(), HasSubstr("had enough"));
    }
  });
  boots[0]->fail({cw::status::aborted, 0, "me too"});
  for (const auto& b : boots) {
    try {
      b->check("later");
      ADD_FAILURE();
    } catch (const cw::error& e) {
      EXPECT_EQ(e.peer(), 2) << e.what();
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Both, Meeting, testing::Values("threads", "star"));

// ---- a star alone

TEST(Star, MemberWhoseProcessEndedIsLost) {
  const star s(3);
  const auto a = s.join(0);
  const auto b = s.join(1);
  s.server->rank_gone(2, "was eaten");
  for (const auto& boot : {a, b}) {
    try {
      (void)boot->get("nothing", seconds(20));
      ADD_FAILURE();
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::peer_lost);
      EXPECT_EQ(e.peer(), 2);
      EXPECT_THAT(e.what(), HasSubstr("was eaten"));
    }
  }
}

TEST(Star, MemberWhoSaidGoodbyeIsNotLostAfterwards) {
  const star s(2);
  const auto a = s.join(0);
  s.join(1)->leave();
  s.server->rank_gone(1, "exited");
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_NO_THROW(a->check("afterwards"));
}

// Who has left will not come: nobody waits for the deadline to learn that.
TEST(Star, LeavingEndsTheWaitsOfOthers) {
  const star s(2);
  const auto a = s.join(0);
  const auto b = s.join(1);
  std::thread leaver([&] {
    std::this_thread::sleep_for(milliseconds(200));
    b->leave();
  });
  const auto start = clock_type::now();
  try {
    a->allgather({}, seconds(8));
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::peer_lost) << e.what();
    EXPECT_EQ(e.peer(), 1) << e.what();
  }
  EXPECT_LT(clock_type::now() - start, seconds(5));
  leaver.join();
}

TEST(Star, ServerThatIsGoneIsNoticed) {
  auto s = std::make_unique<star>(2);
  const auto a = s->join(0);
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(100));
    s.reset();
  });
  try {
    a->allgather({}, seconds(20));
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::peer_lost) << e.what();
  }
  end.join();
}

// The rank that holds the server may go first, when all have met for the last time.
TEST(Star, ServerIsNotMissedAfterTheLastMeeting) {
  auto s = std::make_unique<star>(2);
  const auto other = s->join(1);
  std::thread holder([&] {
    const auto mine = s->join(0);
    mine->part(seconds(20));
    mine->leave();
  });
  other->part(seconds(20));
  holder.join();
  std::atomic<bool> told{false};
  other->on_fault([&](const fault&) { told = true; });
  s.reset();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(told);
  EXPECT_NO_THROW(other->check("still well"));
  other->leave();
}

// The rank that hands out descriptors dies when it has said where, and before anybody called it.
TEST(DescriptorExchange, DeadCollectorIsNamedWithoutWaitingForTheDeadline) {
  const star s(2);
  const auto a = s.join(0);
  const auto b = s.join(1);
  std::thread collector([&] {
    a->allgather(packer().text("unix:@crosswarp-test-nobody-is-here").take(), seconds(20));
    s.server->rank_gone(0, "was killed");
  });
  const int locals[] = {0, 1};
  const auto start = clock_type::now();
  try {
    (void)allgather_descriptors(*b, locals, -1, seconds(10));
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::peer_lost) << e.what();
    EXPECT_EQ(e.peer(), 0) << e.what();
  }
  EXPECT_LT(clock_type::now() - start, seconds(5));
  collector.join();
}

TEST(DescriptorExchange, EveryRankGetsAll) {
  const star s(3);
  std::vector<std::shared_ptr<bootstrap>> boots;
  for (int r = 0; r < 3; ++r) boots.push_back(s.join(r));
  at_once({0, 1, 2}, [&](int r) {
    const int locals[] = {0, 1, 2};
    const socket_pair mine;
    const int fd = r == 1 ? -1 : mine.a.get();
    const auto all =
        allgather_descriptors(*boots[static_cast<std::size_t>(r)], locals, fd, seconds(20));
    ASSERT_EQ(all.size(), 3U);
    EXPECT_TRUE(all[0].open());
    EXPECT_FALSE(all[1].open());
    EXPECT_TRUE(all[2].open());
  });
}

TEST(HeapLargerThanTheMachine, IsRefused) {
  for (const std::size_t bytes : {std::size_t{1} << 50U, ~std::size_t{0} >> 1U, ~std::size_t{0}}) {
    cw::world_options o;
    o.heap_bytes = bytes;
    try {
      cw::run_local(2, o, [](cw::world&) {});
      ADD_FAILURE() << bytes;
    } catch (const cw::error& e) {
      EXPECT_EQ(e.code(), cw::errc::out_of_memory) << e.what();
    }
  }
}

}  // namespace
