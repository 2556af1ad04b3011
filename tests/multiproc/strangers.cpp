// Only members of a job can join it, and nobody else can disturb it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "jobs.hpp"
#include "test_star.hpp"

namespace cw = crosswarp;
using namespace cw::world_impl;

namespace {

using testing::HasSubstr;

/// All ranks join, meet and leave.
void expect_job_completes(const star& s) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < s.size; ++r) {
    ranks.emplace_back([&s, r] {
      try {
        const auto boot = s.join(r);
        for (int i = 0; i < 5; ++i) {
          const auto all = boot->allgather(bytes(static_cast<std::size_t>(r) + 1), seconds(20));
          for (std::size_t q = 0; q < all.size(); ++q) EXPECT_EQ(all[q].size(), q + 1);
        }
        boot->leave();
      } catch (const cw::error& e) {
        ADD_FAILURE() << "rank " << r << ": " << e.what();
      }
    });
  }
  for (std::thread& t : ranks) t.join();
}

std::string refusal(const std::function<void()>& join) {
  try {
    join();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::refused) << e.what();
    return e.what();
  }
  return "admitted";
}

void allow_many_files() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// ---- who may join

TEST(Join, WrongSecretIsRefused) {
  const star s(2);
  EXPECT_THAT(
      refusal([&] { (void)join_star(s.server->address(), make_secret(), 0, 1, 2, seconds(20)); }),
      HasSubstr("secret"));
  expect_job_completes(s);
}

TEST(Join, ServerThatDoesNotKnowTheSecretIsRefused) {
  // It asks for a proof, takes any, and cannot give one itself.
  listener where = listen_tcp("127.0.0.1", 0, "127.0.0.1");
  std::thread impostor([&] {
    pollfd p{where.socket.get(), POLLIN, 0};
    ::poll(&p, 1, 20'000);
    const descriptor c(::accept(where.socket.get(), nullptr, nullptr));
    send_frame(c.get(), {hello, bytes(16)}, after(seconds(20)));
    (void)receive_frame(c.get(), stranger_limit, after(seconds(20)));
    send_frame(c.get(), {welcome, bytes(20)}, after(seconds(20)));
    char rest = 0;
    [[maybe_unused]] const ssize_t n = ::recv(c.get(), &rest, 1, 0);
  });
  EXPECT_THAT(refusal([&] { (void)join_star(where.address, make_secret(), 0, 0, 1, seconds(20)); }),
              HasSubstr("does not know this job's secret"));
  impostor.join();
}

TEST(Join, TwiceAsOneRankIsRefused) {
  const star s(2);
  const auto first = s.join(1);
  EXPECT_THAT(refusal([&] { (void)s.join(1); }), HasSubstr("rank 1 has joined already"));
  EXPECT_NO_THROW(first->check("still a member"));
  first->leave();
  EXPECT_THAT(refusal([&] { (void)s.join(1); }), HasSubstr("rank 1 has joined already"));
}

TEST(Join, RankOutOfRangeIsRefused) {
  const star s(2);
  for (const int rank : {2, 1000, -1}) {
    EXPECT_THAT(refusal([&] { (void)s.join(rank); }), HasSubstr("out of range")) << rank;
  }
  expect_job_completes(s);
}

TEST(Join, AnotherSizeIsRefused) {
  const star s(2);
  for (const int size : {1, 3, 0, -1}) {
    EXPECT_THAT(
        refusal([&] { (void)join_star(s.server->address(), s.secret, 0, 0, size, seconds(20)); }),
        HasSubstr("this job has 2 ranks"))
        << size;
  }
  expect_job_completes(s);
}

TEST(Join, ProofIsGoodForOneConnectionOnly) {
  const star s(2);
  const auto challenge = [](const descriptor& c) {
    const frame f = receive_frame(c.get(), stranger_limit, after(seconds(20)));
    nonce n{};
    unpacker(f.body).raw(n.data(), n.size());
    return n;
  };
  const nonce mine = make_secret();
  const descriptor first = s.stranger();
  const proof p = prove(s.secret, join_statement(challenge(first), mine, 0, 1, 2));
  const frame overheard{
      join,
      packer().u32(0).u32(1).u32(2).raw(mine.data(), mine.size()).raw(p.data(), p.size()).take()};
  const descriptor second = s.stranger();
  (void)challenge(second);
  send_frame(second.get(), overheard, after(seconds(20)));
  EXPECT_EQ(receive_frame(second.get(), stranger_limit, after(seconds(20))).type, reject);
  send_frame(first.get(), overheard, after(seconds(20)));
  EXPECT_EQ(receive_frame(first.get(), stranger_limit, after(seconds(20))).type, welcome);
}

TEST(Join, ProcessWithAnotherSecretEndsAndSaysWhy) {
  const star s(2);
  environment e = {{"CROSSWARP_BOOTSTRAP", s.server->address()},
                   {"CROSSWARP_SIZE", "2"},
                   {"CROSSWARP_RANK", "1"},
                   {"CROSSWARP_HEAP", "1M"}};
  e["CROSSWARP_SECRET"] = to_hex(make_secret());
  process wrong(rank_program({"work"}), e);
  ASSERT_TRUE(wrong.wait(seconds(20)));
  EXPECT_EQ(wrong.code(), 9) << wrong.report();
  EXPECT_THAT(wrong.err(), HasSubstr("secret"));
  for (const char* bad : {"", "nonsense"}) {
    e["CROSSWARP_SECRET"] = bad;
    process broken(rank_program({"work"}), e);
    ASSERT_TRUE(broken.wait(seconds(20)));
    EXPECT_EQ(broken.code(), 9) << broken.report();
    EXPECT_THAT(broken.err(), HasSubstr("CROSSWARP_SECRET"));
  }
  e["CROSSWARP_SECRET"] = to_hex(s.secret);
  process one(rank_program({"work"}), e);
  e["CROSSWARP_RANK"] = "0";
  process zero(rank_program({"work"}), e);
  EXPECT_TRUE(one.wait(seconds(20)) && zero.wait(seconds(20)));
  EXPECT_EQ(one.code(), 0) << one.report();
  EXPECT_EQ(zero.code(), 0) << zero.report();
}

// Under torchrun on one machine the secret is known to all: the name of the socket must admit this
// user's processes only.
TEST(Join, AnotherUserIsRefusedAtAUnixName) {
  if (geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const std::string name = "crosswarp-test-" + to_hex(make_secret());
  const auto server = std::make_shared<star_server>(listen_unix(name), 2, secret_key{}, -1);
  process other({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                 CROSSWARP_RANK_PROGRAM, "work"},
                {{"CROSSWARP_BOOTSTRAP", server->address()},
                 {"CROSSWARP_SIZE", "2"},
                 {"CROSSWARP_RANK", "1"},
                 {"CROSSWARP_SECRET", to_hex(secret_key{})},
                 {"CROSSWARP_TIMEOUT", "2"}});
  ASSERT_TRUE(other.wait(seconds(20)));
  if (other.code() == 126 || other.code() == 127) GTEST_SKIP() << other.err();
  EXPECT_NE(other.code(), 0);
  EXPECT_THAT(other.err(), HasSubstr("refused"));
  EXPECT_NO_THROW((void)join_star(server->address(), secret_key{}, 0, 1, 2, seconds(5)))
      << "the stranger took a member's seat";
}

// ---- who may disturb

struct noise {
  const char* name;
  bytes data;
};
void PrintTo(const noise& n, std::ostream* to) {
  *to << n.name;
}

bytes garbage() {
  std::mt19937_64 random(7);
  return random_bytes(random, 100'000);
}

class Stranger : public testing::TestWithParam<noise> {};

TEST_P(Stranger, DoesNotDisturbTheJob) {
  const star s(3);
  std::vector<descriptor> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(s.stranger());
    [[maybe_unused]] const ssize_t n = ::send(others.back().get(), GetParam().data.data(),
                                              GetParam().data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (i % 4 == 3) others[static_cast<std::size_t>(i)].reset();  // and hangs up
  }
  expect_job_completes(s);
}
INSTANTIATE_TEST_SUITE_P(
    Says, Stranger,
    testing::Values(noise{"nothing", {}}, noise{"one byte", bytes(1)},
                    noise{"half a header", bytes(4)}, noise{"garbage", garbage()},
                    noise{"the web", packer().raw("GET / HTTP/1.1\r\n\r\n", 18).take()},
                    noise{"half a frame", packer().u32(48).u32(join).u64(0).take()},
                    noise{"a huge length", packer().u32(~0U).u32(join).take()},
                    noise{"just too long a length",
                          packer().u32(stranger_limit + 1).u32(join).take()},
                    noise{"an empty frame", packer().u32(0).u32(join).take()},
                    noise{"a short join", encode({join, bytes(11)})},
                    noise{"a join without proof", encode({join, bytes(12 + 16 + 16)})},
                    noise{"a member's message", encode({gather, bytes(24)})},
                    noise{"many frames", bytes(8 * 5000)}));

TEST(StrangerAlone, IsSentAwayWhenItStaysSilent) {
  const star s(2);
  const descriptor silent = s.stranger();
  (void)receive_frame(silent.get(), stranger_limit, after(seconds(5)));
  pollfd p{silent.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 15'000), 1) << "it holds its place for ever";
  char rest = 0;
  EXPECT_LE(::recv(silent.get(), &rest, 1, 0), 0);
}

TEST(StrangerAlone, SixHundredAtOnceDoNotKeepMembersOut) {
  allow_many_files();
  const star s(2);
  std::vector<descriptor> idle;
  for (int i = 0; i < 600; ++i) idle.push_back(s.stranger());
  expect_job_completes(s);
}

TEST(StrangerAlone, DoesNotDisturbTheLauncher) {
  for (const char* idle : {"20", "600"}) {
    process p(job_command(3, {"pester", idle}));
    ASSERT_TRUE(p.wait(seconds(30))) << p.report();
    EXPECT_EQ(p.code(), 0) << idle << " idle connections: " << p.report();
    EXPECT_EQ(p.left_after(milliseconds(0)), "");
  }
}

TEST(Member, ThatSendsNonsenseIsLostToTheOthers) {
  const star s(2);
  const auto good = s.join(0);
  const descriptor bad = s.stranger();
  const frame greeting = receive_frame(bad.get(), stranger_limit, after(seconds(20)));
  nonce theirs{};
  unpacker(greeting.body).raw(theirs.data(), theirs.size());
  const nonce mine = make_secret();
  const proof p = prove(s.secret, join_statement(theirs, mine, 0, 1, 2));
  send_frame(
      bad.get(),
      {join,
       packer().u32(0).u32(1).u32(2).raw(mine.data(), mine.size()).raw(p.data(), p.size()).take()},
      after(seconds(20)));
  ASSERT_EQ(receive_frame(bad.get(), stranger_limit, after(seconds(20))).type, welcome);
  send_frame(bad.get(), {0xdeadbeef, {}}, after(seconds(20)));
  try {
    good->allgather({}, seconds(20));
    ADD_FAILURE();
  } catch (const cw::error& e) {
    EXPECT_EQ(e.code(), cw::errc::peer_lost) << e.what();
    EXPECT_EQ(e.peer(), 1) << e.what();
  }
}

}  // namespace
