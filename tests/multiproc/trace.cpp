// What CROSSWARP_TRACE writes, and what becomes of a job when it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs.hpp"

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto limit = seconds(60);

/// A folder that goes with the test.
class folder {
 public:
  folder() {
    std::string name = std::filesystem::temp_directory_path() / "test-of-trace-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~folder() { std::filesystem::remove_all(path_); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::string operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

json read(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in);
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> all;
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") == phase) all.push_back(e);
  }
  return all;
}

bool on_gpu() {
  const char* device = std::getenv("CROSSWARP_TEST_DEVICE");
  return device != nullptr && std::string(device) != "cpu";
}

/// Kernels of two ranks that talk by commands. Those of one process share a GPU.
void run_commands(const std::string& path, environment e = {}) {
  e["CROSSWARP_TRACE"] = path;
  e["CROSSWARP_TEST_ENGINE"] = "local";
  e["CROSSWARP_TEST_DEVICE"] = on_gpu() ? "cuda" : "cpu";
  std::vector<std::string> command = {CROSSWARP_COMMAND, "run", "-n", "2"};
  if (on_gpu()) command.clear();
  command.insert(command.end(),
                 {CROSSWARP_PROXY_SUITE, "--gtest_filter=Proxy.WhoSeesTheSignalSeesTheData"});
  process p(command, e);
  ASSERT_TRUE(p.wait(limit)) << p.report();
  ASSERT_EQ(p.code(), 0) << p.report();
}

TEST(Trace, HasEveryRanksKernelsProxyEngineAndHost) {
  const folder f;
  run_commands(f / "out.json");
  std::map<std::pair<int, std::string>, int> count;
  for (const json& e : events_of(read(f / "out.json"), "X")) {
    ++count[{e.at("pid"), e.at("cat")}];
    EXPECT_EQ(e.at("args").at("status"), "ok") << e;
    EXPECT_GE(e.at("dur"), 0) << e;
  }
  for (int rank = 0; rank < 2; ++rank) {
    for (const char* category : {"command", "wait", "proxy", "engine", "host", "kernel"}) {
      EXPECT_GT((count[{rank, category}]), 0) << "rank " << rank << ", " << category;
    }
    EXPECT_EQ((count[{rank, "command"}]), (count[{rank, "proxy"}]));
  }
}

// An arrow leads from each command to the host's work for it, which does not begin before.
TEST(Trace, OneClockForKernelsAndHosts) {
  const folder f;
  run_commands(f / "out.json");
  const json trace = read(f / "out.json");
  std::map<std::string, double> asked;
  for (const json& e : events_of(trace, "s")) asked[e.at("id")] = e.at("ts");
  ASSERT_FALSE(asked.empty());
  const double clocks_differ_us = on_gpu() ? 5 : 2;
  for (const json& e : events_of(trace, "f")) {
    const auto from = asked.find(e.at("id"));
    ASSERT_NE(from, asked.end()) << e;
    EXPECT_GE(e.at("ts").get<double>(), from->second - clocks_differ_us) << e;
  }
}

TEST(Trace, WhatAKernelDidLiesInside) {
  const folder f;
  run_commands(f / "out.json");
  struct interval {
    json rank;
    double begin, end;
  };
  std::vector<interval> kernels;
  std::vector<interval> parts;
  for (const json& e : events_of(read(f / "out.json"), "X")) {
    const double begin = e.at("ts");
    const interval i{e.at("pid"), begin, begin + e.at("dur").get<double>()};
    if (e.at("cat") == "kernel") kernels.push_back(i);
    if (e.at("cat") == "command" || e.at("cat") == "wait") parts.push_back(i);
  }
  constexpr double clocks_differ_us = 2;  // between cores
  for (const interval& p : parts) {
    const auto around = [&](const interval& k) {
      return k.rank == p.rank && k.begin <= p.begin + clocks_differ_us &&
             k.end >= p.end - clocks_differ_us;
    };
    EXPECT_EQ(std::count_if(kernels.begin(), kernels.end(), around), 1)
        << "rank " << p.rank << " at " << p.begin;
  }
}

// Otherwise viewers draw nonsense.
TEST(Trace, EventsOfATrackLieBesideOrInsideOfOneAnother) {
  const folder f;
  run_commands(f / "out.json");
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const json& e : events_of(read(f / "out.json"), "X")) {
    const double begin = e.at("ts");
    tracks[{e.at("pid"), e.at("tid")}].emplace_back(begin, begin + e.at("dur").get<double>());
  }
  constexpr double rounding = 0.002;
  for (auto& [track, events] : tracks) {
    std::vector<double> open;
    for (const auto& [begin, end] : events) {
      while (!open.empty() && open.back() <= begin + rounding) open.pop_back();
      ASSERT_TRUE(open.empty() || open.back() >= end - rounding)
          << "rank " << track.first << ", track " << track.second << " at " << begin;
      open.push_back(end);
    }
  }
}

TEST(Trace, RanksThatAreThreadsAreInOneFileToo) {
  const folder f;
  process p({CROSSWARP_PROXY_SUITE, "--gtest_filter=Proxy.CountsWhatItDid"},
            {{"CROSSWARP_TRACE", f / "out.json"}, {"CROSSWARP_TEST_ENGINE", "local"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  ASSERT_EQ(p.code(), 0) << p.report();
  std::set<int> ranks;
  for (const json& e : events_of(read(f / "out.json"), "X")) ranks.insert(e.at("pid").get<int>());
  EXPECT_GT(ranks.size(), 1U);
}

TEST(Trace, EveryWorldHasAFileOfItsOwn) {
  const folder f;
  process p({CROSSWARP_PROXY_SUITE, "--gtest_filter=Proxy.CountsWhatItDid:Proxy.PutsValues*"},
            {{"CROSSWARP_TRACE", f / "out.json"}, {"CROSSWARP_TEST_ENGINE", "local"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_FALSE(read(f / "out.json").empty());
  EXPECT_FALSE(read(f / "out.2.json").empty());
}

TEST(Trace, WhatHasNoRoomIsCounted) {
  const folder f;
  run_commands(f / "out.json", {{"CROSSWARP_TRACE_EVENTS", "10"}});
  const json trace = read(f / "out.json");
  EXPECT_GT(trace.at("otherData").at("dropped"), 0);
  EXPECT_EQ(events_of(trace, "X").size(), 2U * 3 * 10);
}

TEST(Trace, RanksThatAreLeftWriteTheirOwn) {
  const folder f;
  process p(job_command(3, {"lose", "kill", "kernel", "1"}), {{"CROSSWARP_TRACE", f / "out.json"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_FALSE(std::filesystem::exists(f / "out.json"));
  for (const char* name : {"out.rank0.json", "out.rank2.json"}) {
    std::set<std::string> outcomes;
    for (const json& e : events_of(read(f / name), "X")) {
      outcomes.insert(e.at("args").at("status").get<std::string>());
    }
    EXPECT_THAT(outcomes, testing::Contains("peer_lost")) << name;
  }
}

// ---- the command

TEST(TraceCommand, TellsCostsAndWaits) {
  const folder f;
  run_commands(f / "out.json");
  process p({CROSSWARP_COMMAND, "trace", "--top", "50", f / "out.json"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.out(), AllOf(HasSubstr("events of 2 ranks"), HasSubstr("Where time went"),
                             HasSubstr("command  put_signal"), HasSubstr("engine   atomic"),
                             HasSubstr("Who waited for whom"), HasSubstr("rank 1 for others")));
}

TEST(TraceCommand, RefusesWhatIsNoTrace) {
  const folder f;
  std::ofstream(f / "half.json") << R"({"traceEvents":[{"ph":"X",)";
  std::ofstream(f / "other.json") << R"({"a":1})";
  std::ofstream(f / "text.json") << "a letter";
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"half.json", "half.json is not a trace: it stops being JSON at byte 27"},
      {"text.json", "text.json is not a trace: it stops being JSON at byte 1"},
      {"other.json", "other.json is not a trace: it is JSON, but not as CROSSWARP_TRACE writes it"},
      {"absent.json", "absent.json: No such file"}};
  for (const auto& [name, says] : cases) {
    process p({CROSSWARP_COMMAND, "trace", f / name});
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 2) << p.report();
    EXPECT_THAT(p.error_lines(), ElementsAre(HasSubstr(says)));
  }
}

// ---- faults

TEST(TraceFaults, UnwritablePathIsToldAtTheStart) {
  process p(job_command(2, {"work"}), {{"CROSSWARP_TRACE", "/nowhere/out.json"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_NE(p.code(), 0) << p.report();
  EXPECT_THAT(p.err(), AllOf(HasSubstr("CROSSWARP_TRACE"),
                             HasSubstr("/nowhere/out.json: No such file or directory")));
}

TEST(TraceFaults, FullDiskCostsTheTraceAndNotTheJob) {
  process p(job_command(2, {"work"}), {{"CROSSWARP_TRACE", "/dev/full"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("/dev/full: No space left on device"));
}

TEST(TraceFaults, NonsenseIsRefused) {
  for (const char* events : {"0", "-1", "many", "99999999999"}) {
    const folder f;
    process p(job_command(1, {"work"}),
              {{"CROSSWARP_TRACE", f / "out.json"}, {"CROSSWARP_TRACE_EVENTS", events}});
    ASSERT_TRUE(p.wait(limit)) << p.report();
    EXPECT_NE(p.code(), 0) << p.report();
    EXPECT_THAT(p.err(), HasSubstr("CROSSWARP_TRACE_EVENTS")) << p.report();
  }
}

}  // namespace
