// A rank is lost while all are in collectives, or disagrees: the others are told, and who it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"

namespace {

using testing::Contains;
using testing::HasSubstr;

class LostInACollective : public testing::TestWithParam<const char*> {};

TEST_P(LostInACollective, IsToldToAllOthers) {
  constexpr int ranks = 3;
  const std::string how = GetParam();
  for (const int who : {0, 1}) {
    process p({CROSSWARP_COMMAND, "run", "-n", std::to_string(ranks), "--heap", "8M",
               CROSSWARP_COLL_PROGRAM, how, std::to_string(who)},
              {{"CROSSWARP_LOG", "off"}});
    ASSERT_TRUE(p.wait(seconds(20))) << p.report();
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
INSTANTIATE_TEST_SUITE_P(By, LostInACollective,
                         testing::Values("push", "pull", "two_shot", "host"));

TEST(RanksThatDisagree, AreAllToldAlsoWhenRegisteredMemoryIsGone) {
  for (int again = 0; again < 5; ++again) {
    process p(
        {CROSSWARP_COMMAND, "run", "-n", "3", "--heap", "8M", CROSSWARP_COLL_PROGRAM, "disagree"},
        {{"CROSSWARP_LOG", "off"}});
    ASSERT_TRUE(p.wait(seconds(20))) << p.report();
    EXPECT_EQ(p.code(), 9) << p.report();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(p.lines(),
                  Contains(HasSubstr("rank " + std::to_string(rank) + ": coll: ranks disagree")))
          << p.report();
    }
  }
}

}  // namespace
