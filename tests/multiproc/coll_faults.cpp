// A rank is lost while all are in collectives, or disagrees: the others are told, and who it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "jobs.hpp"

namespace {

using testing::Contains;
using testing::HasSubstr;

class LostInACollective : public testing::TestWithParam<const char*> {};

/// UCX itself has ended a rank, see lost_ranks.
bool ucx_gave_up(const process& p) {
  return p.err().find("ucs_fatal_error") != std::string::npos;
}

void lose(const std::string& how, const std::vector<std::string>& options) {
  constexpr int ranks = 3;
  for (const int who : {0, 1}) {
    std::vector<std::string> argv = {CROSSWARP_COMMAND, "run", "-n", std::to_string(ranks)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {CROSSWARP_COLL_PROGRAM, how, std::to_string(who)});
    std::unique_ptr<process> job;
    for (int tries = 3; tries > 0 && (job == nullptr || ucx_gave_up(*job)); --tries) {
      job = std::make_unique<process>(
          argv, environment{{"CROSSWARP_LOG", "off"}, {"CROSSWARP_UCX_TLS", "tcp,self"}});
      ASSERT_TRUE(job->wait(seconds(20))) << job->report();
    }
    process& p = *job;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == who) continue;
      const std::string kernel = how == "host" ? "ok" : "peer_lost";  // the host's has its own word
      EXPECT_THAT(p.lines(),
                  Contains(AllOf(HasSubstr("survivor " + std::to_string(rank) + ": " + kernel),
                                 HasSubstr("peer lost (rank " + std::to_string(who) + ")"))))
          << p.report();
    }
    EXPECT_EQ(p.code(), 128 + SIGKILL) << p.report();
    EXPECT_EQ(p.left_after(seconds(3)), "");
  }
}

TEST_P(LostInACollective, IsToldToAllOthers) {
  lose(GetParam(), {"--heap", "8M"});
}

/// As if on two machines: by what is put, and from machine to machine. UCX without shared memory,
/// see lost_ranks.
TEST(LostInACollectiveOfTwoMachines, IsToldToAllOthers) {
  if (CROSSWARP_HAVE_UCX == 0) GTEST_SKIP() << "built without UCX";
  for (const char* how : {"two_shot", "ring", "message"}) lose(how, {"--nodes", "2"});
}

TEST(CollProgram, RefusesAlgorithmsThatAreNone) {
  process p({CROSSWARP_COLL_PROGRAM, "abacus", "0"});
  ASSERT_TRUE(p.wait(seconds(20))) << p.report();
  EXPECT_EQ(p.code(), 9) << p.report();
  EXPECT_THAT(p.lines(), Contains(HasSubstr("no algorithm abacus"))) << p.report();
}

INSTANTIATE_TEST_SUITE_P(By, LostInACollective,
                         testing::Values("push", "pull", "two_shot", "ring", "symmetric", "message",
                                         "host"));

TEST(RanksThatDisagree, AreAllToldAlsoWhenRegisteredMemoryIsGone) {
  for (int again = 0; again < 5; ++again) {
    process p(
        {CROSSWARP_COMMAND, "run", "-n", "3", "--heap", "8M", CROSSWARP_COLL_PROGRAM, "disagree"},
        {{"CROSSWARP_LOG", "off"}});
    ASSERT_TRUE(p.wait(seconds(20))) << p.report();
    EXPECT_EQ(p.code(), 9) << p.report();
    // Rank 0 differs from both others; they hear of it, and it of one of them.
    const auto says = [](const std::string& rank, const std::string& of) {
      return HasSubstr("rank " + rank + ": coll: ranks disagree (rank " + of + "): it ");
    };
    EXPECT_THAT(p.lines(), Contains(AnyOf(says("0", "1"), says("0", "2")))) << p.report();
    EXPECT_THAT(p.lines(), Contains(says("1", "0"))) << p.report();
    EXPECT_THAT(p.lines(), Contains(says("2", "0"))) << p.report();
  }
}

}  // namespace
