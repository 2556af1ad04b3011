// The same program under launchers that are not ours: mpirun and srun (PMIx), and torchrun's
// variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "jobs.hpp"

namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

// ---- torchrun

void expect_all_done(torchrun_job& job) {
  job.expect_ended();
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    EXPECT_EQ(job.ranks[r]->code(), 0) << job.ranks[r]->report();
    EXPECT_EQ(job.ranks[r]->out(), "done " + std::to_string(r) + " of 3\n");
  }
}

TEST(Torchrun, RanksOfOneMachineMeet) {
  torchrun_job job(3, 3, {"work"});
  expect_all_done(job);
}

TEST(Torchrun, RanksOfSeveralMachinesMeetWithASecret) {
  torchrun_job job(3, 1, {"work"}, {{"CROSSWARP_SECRET", std::string(32, 'a')}});
  expect_all_done(job);
}

TEST(Torchrun, SeveralMachinesWithoutASecretAreRefused) {
  torchrun_job job(3, 1, {"work"});
  job.expect_ended();
  for (const auto& r : job.ranks) {
    EXPECT_EQ(r->code(), 9);
    EXPECT_THAT(r->err(), HasSubstr("CROSSWARP_SECRET"));
  }
}

TEST(Torchrun, NonsenseIsRefused) {
  for (const auto& [rank, size] : {std::pair("3", "3"), std::pair("-1", "3"), std::pair("0", "0"),
                                   std::pair("x", "3"), std::pair("0", "99999999999999999999")}) {
    process p(rank_program({"work"}), {{"RANK", rank}, {"WORLD_SIZE", size}});
    ASSERT_TRUE(p.wait(seconds(20))) << p.report();
    EXPECT_EQ(p.code(), 9) << rank << " of " << size;
    EXPECT_THAT(p.err(), HasSubstr("invalid argument")) << rank << " of " << size;
  }
}

class TorchrunLoss : public testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(TorchrunLoss, IsNamedToTheOthers) {
  const auto [who, place] = GetParam();
  torchrun_job job(3, 3, {"lose", "kill", place, std::to_string(who)});
  job.expect_ended();
  for (int r = 0; r < 3; ++r) {
    const process& p = *job.ranks[static_cast<std::size_t>(r)];
    if (r == who) {
      EXPECT_EQ(p.code(), 128 + SIGKILL);
    } else {
      EXPECT_THAT(p.out(), HasSubstr("peer_lost peer " + std::to_string(who))) << p.report();
    }
  }
}
// Rank 0 is also where the others meet.
INSTANTIATE_TEST_SUITE_P(Who, TorchrunLoss,
                         testing::Combine(testing::Values(0, 2),
                                          testing::Values("barrier", "kernel")));

// ---- mpirun and srun, by PMIx

struct launcher {
  const char* name;
  const char* works;  // succeeds where there is one
  std::vector<std::string> three_ranks;
  const char* end_all;  // when one fails, of its own accord or asked by this variable
};
void PrintTo(const launcher& l, std::ostream* to) {
  *to << l.name;
}

class Pmix : public testing::TestWithParam<launcher> {
 protected:
  void SetUp() override {
    if (CROSSWARP_HAVE_PMIX == 0) GTEST_SKIP() << "built without PMIx";
    const std::string check = std::string(GetParam().works) + " > /dev/null 2>&1";
    if (std::system(check.c_str()) != 0) GTEST_SKIP() << "no " << GetParam().name << " here";
  }
  static std::vector<std::string> command(const std::vector<std::string>& behaviour) {
    std::vector<std::string> argv = GetParam().three_ranks;
    for (const std::string& word : rank_program(behaviour)) argv.push_back(word);
    return argv;
  }
  const environment small = {{"CROSSWARP_HEAP", "1M"}};
};

TEST_P(Pmix, RanksMeet) {
  process p(command({"work"}), small);
  ASSERT_TRUE(p.wait(seconds(60))) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.lines(), UnorderedElementsAre("done 0 of 3", "done 1 of 3", "done 2 of 3"));
}

TEST_P(Pmix, LostRankIsNamedToTheOthers) {
  for (const int who : {0, 2}) {
    process p(command({"lose", "kill", "barrier", std::to_string(who)}), small);
    ASSERT_TRUE(p.wait(seconds(60))) << p.report();
    EXPECT_NE(p.code(), 0);
    for (int r = 0; r < 3; ++r) {
      if (r == who) continue;
      EXPECT_THAT(p.out(), HasSubstr("survivor " + std::to_string(r) + ": peer_lost peer " +
                                     std::to_string(who)))
          << p.report();
    }
  }
}

// Nothing waits for ever, not even for another launcher's exchange.
TEST_P(Pmix, RankThatNeverComesEndsTheWaitOfTheOthers) {
  environment e = small;
  e["CROSSWARP_TIMEOUT"] = "3";
  if (*GetParam().end_all != '\0') e[GetParam().end_all] = "1";
  process p(command({"never_come", "1"}), e);
  ASSERT_TRUE(p.wait(seconds(15))) << p.report();
  EXPECT_THAT(p.out(), HasSubstr("timeout")) << p.report();
}

INSTANTIATE_TEST_SUITE_P(By, Pmix,
                         testing::Values(launcher{"mpirun",
                                                  "mpirun --version",
                                                  {"mpirun", "--allow-run-as-root",
                                                   "--oversubscribe", "-n", "3"},
                                                  ""},
                                         launcher{"srun",
                                                  "timeout 10 srun --mpi=pmix -n 1 true",
                                                  {"srun", "--mpi=pmix", "--overcommit", "-n", "3"},
                                                  "SLURM_KILL_BAD_EXIT"}),
                         [](const auto& by) { return std::string(by.param.name); });

}  // namespace
