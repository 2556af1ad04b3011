// A PE is lost while others use SHMEM: all of them are told, in kernels and in programs of C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"

namespace {

using testing::HasSubstr;

struct path {
  const char* name;
  const char* nodes;
  environment settings;
};
const path mapped{"mapped", "1", {}};
const path local{"proxy", "1", {{"CROSSWARP_PATH", "proxy"}, {"CROSSWARP_ENGINE", "local"}}};
const path ucx{"ucx", "3", {{"CROSSWARP_ENGINE", "ucx"}}};
const path mixed{"mapped and ucx", "2", {{"CROSSWARP_ENGINE", "ucx"}}};
const path rdma{"rdma", "1", {{"CROSSWARP_PATH", "rdma"}}};
bool is_here(const path& p) {
  return CROSSWARP_HAVE_UCX != 0 || p.nodes == std::string("1");
}

struct loss {
  const char* place;
  path way;
};
void PrintTo(const loss& l, std::ostream* to) {
  *to << "in " << l.place << " over " << l.way.name;
}

/// What PE `who` reports, in pieces.
struct outcome {
  std::string kernel;
  int after_ms = -1;
  std::string host;
};
outcome outcome_of(const process& p, int who) {
  const std::string begin = "survivor " + std::to_string(who) + ": ";
  outcome o;
  for (const std::string& line : p.lines()) {
    const std::size_t at = line.find(begin);
    if (at == std::string::npos) continue;
    char kernel[32] = {};
    std::sscanf(line.c_str() + at + begin.size(), "%31s after %d ms", kernel, &o.after_ms);
    o.kernel = kernel;
    o.host = line.substr(line.find("host: "));
  }
  return o;
}

class LostPe : public testing::TestWithParam<loss> {
 protected:
  static constexpr int pes = 3;
  static bool all_spoke(const process& p, int but) {
    for (int pe = 0; pe < pes; ++pe) {
      if (pe != but && outcome_of(p, pe).kernel.empty()) return false;
    }
    return true;
  }
};

TEST_P(LostPe, IsToldToAllOthers) {
  const auto& [place, way] = GetParam();
  if (!is_here(way)) GTEST_SKIP() << "built without UCX";
  environment e = way.settings;
  e["CROSSWARP_LOG"] = "off";
  const bool by_ucx = way.nodes != std::string("1");
  for (const int who : {0, 2}) {
    const std::vector<std::string> job = {
        CROSSWARP_COMMAND,  "run",    "-n", std::to_string(pes),     "--nodes",
        way.nodes,          "--heap", "4M", CROSSWARP_SHMEM_PROGRAM, place,
        std::to_string(who)};
    // Over UCX, on a machine with four times as much to do as it has cores, a survivor was without
    // a word until the launcher ended it in about one of a hundred jobs. Why is not known; it may
    // be the first of the limits of UCX in docs/design/proxy.md. So it may take three tries there.
    std::unique_ptr<process> p;
    for (int tries = by_ucx ? 3 : 1; tries > 0; --tries) {
      p = std::make_unique<process>(job, e);
      ASSERT_TRUE(p->wait(seconds(30))) << p->report();
      if (all_spoke(*p, who)) break;
    }
    for (int pe = 0; pe < pes; ++pe) {
      if (pe == who) continue;
      const outcome o = outcome_of(*p, pe);
      EXPECT_EQ(o.kernel, "peer_lost") << "PE " << pe << ": " << p->report();
      EXPECT_THAT(o.host, HasSubstr("peer lost (rank " + std::to_string(who) + ")"))
          << "PE " << pe << ": " << p->report();
      EXPECT_LT(o.after_ms, 6000) << "PE " << pe << ": " << p->report();
    }
    EXPECT_EQ(p->code(), 128 + SIGKILL) << p->report();
    EXPECT_EQ(p->left_after(seconds(3)), "");
  }
}
INSTANTIATE_TEST_SUITE_P(Everywhere, LostPe,
                         testing::Values(loss{"barrier", mapped}, loss{"barrier", local},
                                         loss{"barrier", ucx}, loss{"barrier", mixed},
                                         loss{"wait_until", mapped}, loss{"wait_until", local},
                                         loss{"wait_until", ucx}, loss{"get", mapped},
                                         loss{"get", local}, loss{"get", ucx}, loss{"get", mixed},
                                         loss{"get_alone", ucx}, loss{"atomic", mapped},
                                         loss{"atomic", ucx}, loss{"lock", mapped},
                                         loss{"lock", ucx}, loss{"barrier", rdma},
                                         loss{"get_alone", rdma}, loss{"atomic", rdma}));

// ---- programs of C, started by somebody who leaves the others alone

class CProgram : public testing::TestWithParam<const char*> {};

TEST_P(CProgram, SaysWhoIsLostAndFails) {
  constexpr int pes = 3;
  const environment settings = {{"WORLD_SIZE", std::to_string(pes)},
                                {"LOCAL_WORLD_SIZE", std::to_string(pes)},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", std::to_string(free_port())},
                                {"SHMEM_SYMMETRIC_SIZE", "1M"}};
  std::vector<std::unique_ptr<process>> all;
  for (int pe = 0; pe < pes; ++pe) {
    environment e = settings;
    e["RANK"] = e["LOCAL_RANK"] = std::to_string(pe);
    all.push_back(std::make_unique<process>(
        std::vector<std::string>{CROSSWARP_ENDING_PROGRAM, "0", "die", GetParam()}, e));
  }
  for (const auto& p : all) ASSERT_TRUE(p->wait(seconds(30))) << p->report();
  EXPECT_EQ(all[1]->code(), 128 + SIGABRT) << all[1]->report();
  // The first to notice ends the job: it speaks, the other may have no time to.
  const std::string said = all[0]->err() + all[2]->err();
  EXPECT_THAT(said, HasSubstr("crosswarp: PE ")) << said;
  EXPECT_THAT(said, HasSubstr("peer_lost")) << said;
  EXPECT_THAT(said, HasSubstr("rank 1")) << said;
  EXPECT_EQ(all[0]->code(), 1) << all[0]->report();
  EXPECT_EQ(all[2]->code(), 1) << all[2]->report();
}
INSTANTIATE_TEST_SUITE_P(Everywhere, CProgram, testing::Values("barrier", "wait", "get"));

#ifdef CROSSWARP_MPIRUN

// Code 0 was 1 here: mpirun takes a process that goes without a word for one that failed.
TEST(Mpirun, ReturnsTheCodeOfGlobalExit) {
  for (const int code : {0, 7}) {
    for (const char* where : {"compute", "wait"}) {
      process p({CROSSWARP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                 "-n", "3", CROSSWARP_ENDING_PROGRAM, std::to_string(code), "exit", where},
                {{"SHMEM_SYMMETRIC_SIZE", "1M"}});
      ASSERT_TRUE(p.wait(seconds(60))) << p.report();
      EXPECT_EQ(p.code(), code) << where << ": " << p.report();
      EXPECT_EQ(p.left_after(seconds(3)), "");
    }
  }
}

#endif

}  // namespace
