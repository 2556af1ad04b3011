// Commands under way while a rank dies, an engine is missing, or the network is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "jobs.hpp"

namespace {

using testing::HasSubstr;

std::vector<std::string> proxy_job(std::vector<std::string> options, const std::string& behaviour) {
  std::vector<std::string> argv = {CROSSWARP_COMMAND, "run", "--heap", "4M"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {CROSSWARP_PROXY_PROGRAM, behaviour});
  return argv;
}

TEST(LostRank, IsToldToWhoAskedItAndOthersGoOn) {
  for (const char* nodes : {"1", "3"}) {
    const char* engine = nodes[0] == '1' ? "local" : "ucx";
    if (engine == std::string("ucx") && CROSSWARP_HAVE_UCX == 0) continue;
    process p(proxy_job({"-n", "3", "--nodes", nodes}, "lose"),
              {{"CROSSWARP_ENGINE", engine}, {"CROSSWARP_LOG", "off"}});
    ASSERT_TRUE(p.wait(seconds(30))) << p.report();
    const char* expected = "kernel: peer_lost ok peer_lost peer_lost ok";
    EXPECT_THAT(p.out(), HasSubstr(expected)) << engine << ": " << p.report();
    EXPECT_THAT(p.out(), HasSubstr("peer lost (rank 2)")) << engine << ": " << p.report();
    EXPECT_EQ(p.left_after(seconds(3)), "");
  }
}

TEST(MissingEngine, IsAClearError) {
  const auto fails_with = [](const environment& e, const char* text) {
    process p(proxy_job({"-n", "2", "--nodes", "2"}, "lose"), e);
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
      e["MASTER_PORT"] = "29500";
      e["CROSSWARP_SECRET"] = std::string(32, '7');
      e["CROSSWARP_HEAP"] = "4M";
      ranks.push_back(std::make_unique<process>(argv, e));
    }
    return ranks;
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
  }
  static std::string name(int host) {
    return "crosswarp-" + std::to_string(getpid()) + (host == 0 ? "a" : "b");
  }
  static std::string link(int host) {
    return "cw" + std::to_string(getpid() % 100000) + (host == 0 ? "a" : "b");
  }
  static std::string address(int host) { return "10.77.13." + std::to_string(host + 1); }
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

}  // namespace
