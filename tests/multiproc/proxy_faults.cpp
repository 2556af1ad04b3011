// Commands under way while a rank dies or stands still, an engine is missing, or the network is
// cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "jobs.hpp"

namespace {

using testing::HasSubstr;

std::vector<std::string> proxy_job(const std::vector<std::string>& options,
                                   const std::vector<std::string>& behaviour) {
  std::vector<std::string> argv = {CROSSWARP_COMMAND, "run", "--heap", "4M"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.emplace_back(CROSSWARP_PROXY_PROGRAM);
  argv.insert(argv.end(), behaviour.begin(), behaviour.end());
  return argv;
}

TEST(LostRank, IsToldToWhoAskedItAndOthersGoOn) {
  struct way {
    std::string engine;
    const char* staging;
  };
  for (const auto& [engine, staging] :
       {way{"local", "never"}, {"ucx", "never"}, {"ucx", "always"}, {"rdma", "never"}}) {
    if (engine == "ucx" && CROSSWARP_HAVE_UCX == 0) continue;
    const bool rdma = engine == "rdma";  // in the proxy's place
    process p(proxy_job({"-n", "3", "--nodes", engine == "ucx" ? "3" : "1"}, {"lose"}),
              {{"CROSSWARP_ENGINE", rdma ? "local" : engine},
               {"CROSSWARP_PATH", rdma ? "rdma" : "auto"},
               {"CROSSWARP_STAGING", staging},
               {"CROSSWARP_LOG", "off"}});
    ASSERT_TRUE(p.wait(seconds(30))) << p.report();
    const char* expected = "kernel: peer_lost ok peer_lost peer_lost ok";
    EXPECT_THAT(p.out(), HasSubstr(expected)) << engine << ": " << p.report();
    EXPECT_THAT(p.out(), HasSubstr("peer lost (rank 2)")) << engine << ": " << p.report();
    EXPECT_EQ(p.left_after(seconds(3)), "");
  }
}

// So it is also for a rank that cannot hear the others any more: the dead one was just writing to
// it, see the limits in docs/design/proxy.md.
TEST(LostRank, AndAnotherThatDoesNotAnswerEndAtTheDeadline) {
  if (CROSSWARP_HAVE_UCX == 0) GTEST_SKIP() << "built without UCX";
  process p(proxy_job({"-n", "3", "--nodes", "3"}, {"lose", "mute"}),
            {{"CROSSWARP_ENGINE", "ucx"}, {"CROSSWARP_TIMEOUT", "1"}, {"CROSSWARP_LOG", "off"}});
  ASSERT_TRUE(p.wait(seconds(30))) << p.report();
  EXPECT_THAT(p.out(), HasSubstr("kernel: peer_lost timeout peer_lost peer_lost")) << p.report();
}

TEST(MissingEngine, IsAClearError) {
  const auto fails_with = [](const environment& e, const char* text) {
    process p(proxy_job({"-n", "2", "--nodes", "2"}, {"lose"}), e);
    ASSERT_TRUE(p.wait(seconds(30))) << p.report();
    EXPECT_NE(p.code(), 0);
    EXPECT_THAT(p.out(), HasSubstr(text)) << p.report();
  };
  fails_with({{"CROSSWARP_ENGINE", "nonsense"}}, "'nonsense' is none of auto, ucx, mpi, local");
  fails_with({{"CROSSWARP_ENGINE", "local"}}, "engine local: not supported");
  // A file of the right name that is no module.
  fails_with({{"CROSSWARP_ENGINE", "ucx"}, {"CROSSWARP_ENGINE_PATH", CROSSWARP_BROKEN_ENGINES}},
             "engine ucx: not supported");
}

// ---- a rank that is slow to answer

/// What rank 0 says of its chat.
struct talk {
  long said = -1;
  long late = -1;
  long longest_ms = -1;
};
talk talk_of_rank_0(const process& p) {
  talk t;
  for (const std::string& line : p.lines()) {
    const std::size_t at = line.find("rank 0: ");
    if (at == std::string::npos) continue;
    std::sscanf(line.c_str() + at, "rank 0: %ld said, %ld late, the longest took %ld ms", &t.said,
                &t.late, &t.longest_ms);
  }
  return t;
}

class SlowRank : public testing::Test {
 protected:
  void SetUp() override {
    if (CROSSWARP_HAVE_UCX == 0) GTEST_SKIP() << "built without UCX";
  }
  /// Two ranks, with slots enough for all that is late.
  static std::vector<std::string> job(const std::vector<std::string>& behaviour) {
    return proxy_job({"-n", "2", "--nodes", "2"}, behaviour);
  }
  static void expect_all_well(process& p) {
    ASSERT_TRUE(p.wait(seconds(60))) << p.report();
    EXPECT_EQ(p.code(), 0) << p.report();
    EXPECT_EQ(p.err(), "") << "nobody is lost";
  }
  static constexpr long of_the_world_ms = 20'000;  // its deadline is later, also on a busy machine
  const environment slots = {{"CROSSWARP_ENGINE", "ucx"}, {"CROSSWARP_QUEUE_DEPTH", "1024"}};
};

TEST_F(SlowRank, ThatStandsStillForASecondMakesCommandsLateAndLosesNone) {
  process p(job({"chat", "3", "100"}), slots);
  ASSERT_TRUE(p.wait_for("talking", 2)) << p.report();
  std::this_thread::sleep_for(milliseconds(300));
  pid_t still = 0;
  for (const job_process& one : p.alive()) {
    if (one.rank == 1) still = one.pid;
  }
  ASSERT_GT(still, 0);
  kill(still, SIGSTOP);
  std::this_thread::sleep_for(seconds(1));
  kill(still, SIGCONT);
  expect_all_well(p);
  const talk t = talk_of_rank_0(p);
  EXPECT_GT(t.late, 0) << p.report();
  EXPECT_LT(t.late, 100) << "each of them was waited for: " << p.report();
  EXPECT_LT(t.longest_ms, of_the_world_ms) << "at its own deadline: " << p.report();
}

TEST_F(SlowRank, WithoutTimeForItsProxyMakesCommandsLateAndLosesNone) {
  process p(job({"starve", "2", "50"}), slots);
  ASSERT_TRUE(p.wait(seconds(60))) << p.report();
  if (p.code() == 3) GTEST_SKIP() << "threads cannot be starved here";
  expect_all_well(p);
  const talk t = talk_of_rank_0(p);
  EXPECT_GT(t.late, 0) << p.report();
  EXPECT_LT(t.longest_ms, of_the_world_ms) << p.report();
}

TEST_F(SlowRank, WithoutTimeForItsProxyIsWaitedForByThePatient) {
  process p(job({"starve", "2", "0"}), slots);
  ASSERT_TRUE(p.wait(seconds(60))) << p.report();
  if (p.code() == 3) GTEST_SKIP() << "threads cannot be starved here";
  expect_all_well(p);
  EXPECT_GT(talk_of_rank_0(p).said, 0) << p.report();
}

// ---- two hosts on this machine: network namespaces, joined by a cable

class two_hosts {
 public:
  two_hosts() {
    works_ = run("ip netns add " + name(0)) && run("ip netns add " + name(1)) &&
             run("ip link add " + link(0) + " netns " + name(0) + " type veth peer name " +
                 link(1) + " netns " + name(1));
    for (const int host : {0, 1}) {
      const std::string in = "ip -n " + name(host) + " ";
      works_ = works_ && run(in + "addr add " + address(host) + "/24 dev " + link(host)) &&
               run(in + "link set lo up") && run(in + "link set " + link(host) + " up");
    }
    // An interface takes a moment to be up.
    works_ = works_ && soon(seconds(10), [&] {
               return run("ip -n " + name(0) + " link show " + link(0) + " | grep 'state UP'") &&
                      run("ip -n " + name(1) + " link show " + link(1) + " | grep 'state UP'");
             });
  }
  ~two_hosts() {
    run("ip netns del " + name(0));
    run("ip netns del " + name(1));
  }
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;

  [[nodiscard]] bool works() const noexcept { return works_; }
  void cut() const { run("ip -n " + name(0) + " link set " + link(0) + " down"); }
  void join() const { run("ip -n " + name(0) + " link set " + link(0) + " up"); }
  /// Ends connections between the two, but not those where ranks meet; false when it cannot.
  [[nodiscard]] bool reset() const {
    return run("ip netns exec " + name(0) + " ss -K -tnH 'dst " + address(1) +
               " and sport != " + std::to_string(meeting_port) + "' | grep ESTAB");
  }

  /// The program on each of the two, as ranks 0 and 1.
  std::vector<std::unique_ptr<process>> start(const std::vector<std::string>& program,
                                              const environment& extra) const {
    std::vector<std::unique_ptr<process>> ranks;
    for (const int host : {0, 1}) {
      std::vector<std::string> argv = {"ip", "netns", "exec", name(host)};
      argv.insert(argv.end(), program.begin(), program.end());
      environment e = extra;
      e["RANK"] = std::to_string(host);
      e["WORLD_SIZE"] = "2";
      e["LOCAL_RANK"] = "0";
      e["LOCAL_WORLD_SIZE"] = "1";
      e["MASTER_ADDR"] = address(0);
      e["MASTER_PORT"] = std::to_string(meeting_port - 1);
      e["CROSSWARP_SECRET"] = std::string(32, '7');
      e["CROSSWARP_HEAP"] = "4M";
      ranks.push_back(std::make_unique<process>(argv, e));
    }
    return ranks;
  }

#ifdef CROSSWARP_MPIRUN
  /// The program on each of the two, as a job of mpirun on the first; MPI has TCP between them.
  [[nodiscard]] std::unique_ptr<process> mpirun(const std::vector<std::string>& program,
                                                int on_each, environment extra) const {
    const std::string slots = ":" + std::to_string(on_each);
    std::vector<std::string> argv = {"ip", "netns", "exec", name(0), CROSSWARP_MPIRUN};
    argv.insert(argv.end(), {"--allow-run-as-root", "--bind-to", "none"});
    const auto set = [&](const char* parameter, const std::string& value) {
      argv.insert(argv.end(), {"--mca", parameter, value});
    };
    set("plm_rsh_agent", CROSSWARP_OTHER_HOST);
    set("mpi_yield_when_idle", "1");
    set("pml", "ob1");
    set("btl", "tcp,vader,self");
    set("btl_tcp_if_include", "10.77.13.0/24");
    set("osc", "^rdma,ucx");
    argv.insert(argv.end(), {"--host", address(0) + slots + "," + address(1) + slots});
    argv.insert(argv.end(), {"-n", std::to_string(2 * on_each)});
    extra["CROSSWARP_HEAP"] = "4M";
    for (const auto& [variable, value] : extra) argv.insert(argv.end(), {"-x", variable});
    argv.insert(argv.end(), program.begin(), program.end());
    extra["TEST_OTHER_HOST"] = name(1);
    // MPI unloads its components before leaks are looked for.
    extra["ASAN_OPTIONS"] = "detect_stack_use_after_return=0:detect_leaks=0";
    return std::make_unique<process>(argv, extra);
  }
#endif

 private:
  static constexpr int meeting_port = 29501;  // of the first world: next to the master's

  static bool run(const std::string& command) {
    return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
  }
  static std::string name(int host) {
    return "crosswarp-" + std::to_string(getpid()) + (host == 0 ? "a" : "b");
  }
  static std::string link(int host) {
    return "cw" + std::to_string(getpid() % 100000) + (host == 0 ? "a" : "b");
  }
  static std::string address(int host) {
    return "10.77.13." + std::to_string(host + 1);
  }
  bool works_ = false;
};

class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (CROSSWARP_HAVE_UCX == 0) GTEST_SKIP() << "built without UCX";
    if (!hosts.works()) GTEST_SKIP() << "network namespaces cannot be made here";
  }
  two_hosts hosts;
};

TEST_F(TwoHosts, TheWholeSuiteOverUcx) {
  const auto ranks = hosts.start({CROSSWARP_PROXY_SUITE}, {{"CROSSWARP_TEST_ENGINE", "ucx"}});
  for (const auto& r : ranks) {
    ASSERT_TRUE(r->wait(seconds(120))) << r->report();
    EXPECT_EQ(r->code(), 0) << r->report();
  }
}

TEST_F(TwoHosts, ACableThatIsCutForASecondLosesNothing) {
  const auto ranks = hosts.start({CROSSWARP_PROXY_PROGRAM, "chat", "3"}, {});
  ASSERT_TRUE(ranks[0]->wait_for("talking")) << ranks[0]->report();
  std::this_thread::sleep_for(milliseconds(500));
  hosts.cut();
  std::this_thread::sleep_for(seconds(1));
  hosts.join();
  for (const auto& r : ranks) {
    ASSERT_TRUE(r->wait(seconds(40))) << r->report();
    EXPECT_EQ(r->code(), 0) << r->report();
    EXPECT_THAT(r->out(), HasSubstr("all arrived"));
  }
}

TEST_F(TwoHosts, ACableThatIsCutForEverEndsInAnError) {
  const auto ranks =
      hosts.start({CROSSWARP_PROXY_PROGRAM, "chat", "600"}, {{"CROSSWARP_TIMEOUT", "4"}});
  ASSERT_TRUE(ranks[0]->wait_for("talking")) << ranks[0]->report();
  std::this_thread::sleep_for(milliseconds(300));
  hosts.cut();
  for (const auto& r : ranks) {
    ASSERT_TRUE(r->wait(seconds(40))) << r->report();
    EXPECT_NE(r->code(), 0) << r->report();
  }
}

// The world is whole, so nobody but the engine knows. Nothing is under way: UCX 1.13 ends the
// process when the connection breaks that it has an atomic operation to answer on.
TEST_F(TwoHosts, AConnectionThatIsResetIsToldOnceWithItsReason) {
  const auto ranks = hosts.start({CROSSWARP_PROXY_PROGRAM, "pause", "2"}, {});
  for (const auto& r : ranks) ASSERT_TRUE(r->wait_for("pausing")) << r->report();
  std::this_thread::sleep_for(milliseconds(300));
  if (!hosts.reset()) GTEST_SKIP() << "connections cannot be ended here (ss -K)";
  for (const auto& r : ranks) {
    ASSERT_TRUE(r->wait(seconds(40))) << r->report();
    EXPECT_EQ(r->code(), 0) << r->report();
  }
  EXPECT_THAT(ranks[0]->out(), HasSubstr("kernel: ok\n")) << ranks[0]->report();
  EXPECT_THAT(ranks[0]->out(), HasSubstr("kernel: peer_lost\n")) << ranks[0]->report();
  const auto said = ranks[0]->error_lines();
  ASSERT_EQ(said.size(), 1U) << ranks[0]->report();
  EXPECT_THAT(said[0], HasSubstr("crosswarp error rank 0: ucx: ")) << ranks[0]->report();
  EXPECT_THAT(said[0], HasSubstr(" (rank 1)")) << ranks[0]->report();
  EXPECT_EQ(ranks[1]->err(), "");
}

#ifdef CROSSWARP_MPIRUN

class TwoHostsOfMpi : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!hosts.works()) GTEST_SKIP() << "network namespaces cannot be made here";
  }
  two_hosts hosts;
};

TEST_P(TwoHostsOfMpi, TheWholeSuite) {
  const auto paths = hosts.mpirun({CROSSWARP_RANK_PROGRAM, "show_paths"}, GetParam(), {});
  ASSERT_TRUE(paths->wait(seconds(60))) << paths->report();
  ASSERT_THAT(paths->out(), HasSubstr("rank 0 nodes 2 ")) << paths->report();
  const auto suite =
      hosts.mpirun({CROSSWARP_PROXY_SUITE}, GetParam(), {{"CROSSWARP_TEST_ENGINE", "mpi"}});
  ASSERT_TRUE(suite->wait(seconds(200))) << suite->report();
  EXPECT_EQ(suite->code(), 0) << suite->report();
  EXPECT_THAT(suite->out(), HasSubstr("PASSED")) << suite->report();
}

INSTANTIATE_TEST_SUITE_P(RanksOnEach, TwoHostsOfMpi, testing::Values(1, 2));

#endif

}  // namespace
