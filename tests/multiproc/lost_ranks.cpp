// A rank is lost while the others wait for it: they are told, and told which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"

namespace {

using testing::HasSubstr;

/// "survivor 0: peer_lost peer 1 after 160 ms: ..." in pieces.
struct outcome {
  int rank = -1;
  std::string code;
  int peer = -1;
  int after_ms = -1;
  std::string what;
};

std::vector<outcome> outcomes(const process& p) {
  std::vector<outcome> all;
  for (const std::string& line : p.lines()) {
    outcome o;
    char code[32] = {};
    int end = 0;
    const std::size_t at = line.find("survivor ");
    if (at == std::string::npos) continue;
    if (std::sscanf(line.c_str() + at, "survivor %d: %31s peer %d after %d ms: %n", &o.rank, code,
                    &o.peer, &o.after_ms, &end) == 4) {
      o.code = code;
      o.what = line.substr(at + static_cast<std::size_t>(end));
    }
    all.push_back(o);
  }
  return all;
}

struct loss {
  const char* how;
  const char* place;
  const char* code;
  int exit;
};
void PrintTo(const loss& l, std::ostream* to) {
  *to << l.how << " while others are in " << l.place;
}

class LostRank : public testing::TestWithParam<loss> {
 protected:
  static constexpr int ranks = 3;
};

TEST_P(LostRank, IsNamedToAllThatWait) {
  const loss& l = GetParam();
  for (const int who : {0, 2}) {
    process p(job_command(ranks, {"lose", l.how, l.place, std::to_string(who)}));
    ASSERT_TRUE(p.wait(seconds(15))) << p.report();
    const auto all = outcomes(p);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks - 1)) << p.report();
    for (const outcome& o : all) {
      EXPECT_EQ(o.code, l.code) << p.report();
      EXPECT_EQ(o.peer, who) << p.report();
      EXPECT_THAT(o.what, HasSubstr("rank " + std::to_string(who)));
      EXPECT_LT(o.after_ms, 4000) << p.report();
    }
    if (std::string(l.place) == "kernel" || std::string(l.place) == "flow") {
      EXPECT_THAT(p.out(), HasSubstr(std::string("kernel: ") + l.code));
    }
    EXPECT_EQ(p.code(), l.exit) << p.report();
    EXPECT_EQ(p.left_after(milliseconds(500)), "");
  }
}
INSTANTIATE_TEST_SUITE_P(
    Everywhere, LostRank,
    testing::Values(
        loss{"kill", "barrier", "peer_lost", 137}, loss{"kill", "get", "peer_lost", 137},
        loss{"kill", "kernel", "peer_lost", 137}, loss{"exit", "barrier", "peer_lost", 7},
        loss{"exit", "get", "peer_lost", 7}, loss{"exit", "kernel", "peer_lost", 7},
        loss{"terminate", "barrier", "peer_lost", 134}, loss{"terminate", "get", "peer_lost", 134},
        loss{"terminate", "kernel", "peer_lost", 134}, loss{"throw", "barrier", "aborted", 9},
        loss{"throw", "get", "aborted", 9}, loss{"throw", "kernel", "aborted", 9},
        loss{"kill", "flow", "peer_lost", 137}, loss{"std_exit", "barrier", "peer_lost", 7},
        loss{"std_exit", "kernel", "peer_lost", 7}));

/// How ranks reach each other.
struct way {
  std::vector<std::string> options;
  environment more;
};
/// By stores, by UCX as if each rank were on a machine of its own, and by entries for a soft NIC.
/// UCX without shared memory: a rank that is killed in the middle of using that can take it along
/// (see docs/design/proxy.md).
std::vector<way> ways() {
  std::vector<way> all = {{{"-n", "3"}, {}}, {{"-n", "3"}, {{"CROSSWARP_PATH", "rdma"}}}};
  if (CROSSWARP_HAVE_UCX != 0)
    all.push_back({{"-n", "3", "--nodes", "3"}, {{"CROSSWARP_UCX_TLS", "tcp,self"}}});
  return all;
}

/// UCX itself has ended a rank (see the limits of UCX in docs/design/proxy.md).
bool ucx_gave_up(const process& p) {
  return p.err().find("ucs_fatal_error") != std::string::npos;
}

/// Rank `who` of a job is killed: the others hear of it, soon.
void expect_peer_lost(const way& by, const std::vector<std::string>& behaviour, int who,
                      const std::string& says = "") {
  std::unique_ptr<process> p;
  for (int tries = 3; tries > 0 && (p == nullptr || ucx_gave_up(*p)); --tries) {
    p = std::make_unique<process>(job_command(by.options, behaviour), by.more);
    ASSERT_TRUE(p->wait(seconds(15))) << p->report();
  }
  const auto all = outcomes(*p);
  ASSERT_EQ(all.size(), 2U) << p->report();
  for (const outcome& o : all) {
    EXPECT_EQ(o.code, "peer_lost") << p->report();
    EXPECT_EQ(o.peer, who) << p->report();
    EXPECT_LT(o.after_ms, 4000) << p->report();
  }
  EXPECT_THAT(p->out(), HasSubstr(says)) << p->report();
  EXPECT_EQ(p->code(), 137) << p->report();
  EXPECT_EQ(p->left_after(milliseconds(500)), "");
}

TEST(LostWorker, IsNamedToAllThatShareItsWorklist) {
  for (const way& by : ways()) {
    for (const int who : {0, 2}) {
      expect_peer_lost(by, {"lose_in_worklist", std::to_string(who)}, who, "kernel: peer_lost");
    }
  }
}

TEST(LostSender, IsNamedToAllOfItsGraph) {
  for (const way& by : ways()) {
    for (const int who : {0, 2}) {
      expect_peer_lost(by, {"lose_in_graph", std::to_string(who)}, who);
    }
  }
}

TEST(LostPeer, IsNamedToKernelsThatWaitAtEitherEndOfALink) {
  for (const way& by : ways()) {
    for (const char* place : {"empty", "full"}) {
      expect_peer_lost(by, {"lose_at_link", place, "1"}, 1, "kernel: peer_lost");
    }
  }
}

/// In rounds where ranks are mapped, else by a worklist.
TEST(LostSearcher, IsNamedToAllThatSearchAGraph) {
  for (const way& by : ways()) {
    for (const int who : {0, 2}) {
      expect_peer_lost(by, {"lose_in_program", "bfs", std::to_string(who)}, who);
    }
  }
  expect_peer_lost({{"-n", "3"}, {}}, {"lose_in_program", "sssp", "1"}, 1);
}

// A rank that neither comes nor dies: the deadline passes, and its name is known.
class StalledRank : public testing::TestWithParam<const char*> {};

TEST_P(StalledRank, IsNamedWhenTheDeadlinePasses) {
  process p(job_command(3, {"lose", "stop", GetParam(), "1"}), {{"CROSSWARP_TIMEOUT", "2"}});
  ASSERT_TRUE(p.wait(seconds(20))) << p.report();
  const auto all = outcomes(p);
  ASSERT_EQ(all.size(), 2U) << p.report();
  for (const outcome& o : all) {
    EXPECT_EQ(o.code, "timeout") << p.report();
    EXPECT_EQ(o.peer, 1) << p.report();
    EXPECT_GE(o.after_ms, 1500);
    EXPECT_LT(o.after_ms, 8000);
  }
  EXPECT_EQ(p.left_after(milliseconds(500)), "") << "a stopped process is ended too";
}
INSTANTIATE_TEST_SUITE_P(Everywhere, StalledRank, testing::Values("barrier", "kernel"));

TEST(AbsentRank, ThatEndsBeforeItJoinsIsNamed) {
  for (const char* code : {"0", "5"}) {
    process p(job_command(3, {"stay_away", "1", code}));
    ASSERT_TRUE(p.wait(seconds(15))) << p.report();
    for (const char* rank : {"[0] ", "[2] "}) {
      EXPECT_THAT(p.out(), HasSubstr(rank + std::string("survivor: peer 1: "))) << p.report();
    }
    EXPECT_THAT(p.out(), HasSubstr(std::string("exited with code ") + code));
    EXPECT_EQ(p.code(), code == std::string("0") ? 9 : 5) << p.report();
  }
}

TEST(AbsentRank, ThatNeverComesIsNamedWhenTheDeadlinePasses) {
  process p(job_command(3, {"never_come", "1"}), {{"CROSSWARP_TIMEOUT", "2"}});
  ASSERT_TRUE(p.wait(seconds(20))) << p.report();
  EXPECT_THAT(p.out(), HasSubstr("timeout (rank 1)")) << p.report();
  EXPECT_EQ(p.left_after(milliseconds(500)), "");
}

}  // namespace
