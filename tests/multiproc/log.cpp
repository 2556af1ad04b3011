// What ranks say on stderr when CROSSWARP_LOG lets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "jobs.hpp"

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto limit = seconds(30);

/// "[2] 2025-01-31 12:00:00.123 crosswarp error rank 2: world: ..." in pieces.
struct line {
  std::string level;
  int rank = -1;
  std::string text;
};

/// "[0] 2026-01-31 12:00:00.000 crosswarp warn rank 0: text", the first and "rank 0" not always.
std::vector<line> log_lines(const process& p) {
  std::vector<line> all;
  for (const std::string& text : p.error_lines()) {
    const std::size_t name = text.find(" crosswarp ");
    const std::size_t colon = text.find(": ", name);
    if (name == std::string::npos || colon == std::string::npos) continue;
    // The time before it: two words of known shape.
    const std::string when = text.substr(0, name);
    if (when.size() < 23 || when[when.size() - 4] != '.' || when[when.size() - 13] != ' ') continue;
    std::istringstream words(text.substr(name, colon - name));
    std::string word;
    line l;
    words >> word >> l.level;
    if (words >> word && word == "rank") words >> l.rank;
    l.text = text.substr(colon + 2);
    all.push_back(l);
  }
  return all;
}

/// Those of a rank that hold `text`.
int count(const std::vector<line>& all, int rank, const std::string& level,
          const std::string& text) {
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const line& l) {
    return l.rank == rank && l.level == level && l.text.find(text) != std::string::npos;
  }));
}

// ---- when all is well

TEST(Log, SaysNothingInAGoodRun) {
  for (int again = 0; again < 5; ++again) {
    process p(job_command(3, {"work"}));
    ASSERT_TRUE(p.wait(limit)) << p.report();
    EXPECT_EQ(p.code(), 0) << p.report();
    ASSERT_EQ(p.err(), "");
  }
}

// Rank 0 holds the server, and may be gone before the others have said goodbye: they must not take
// that for its death.
TEST(Log, SaysNothingWhenTheServersRankEndsFirst) {
  for (int again = 0; again < 5; ++again) {
    torchrun_job job(3, 3, {"work"});
    job.expect_ended();
    for (const auto& r : job.ranks) {
      EXPECT_EQ(r->code(), 0) << r->report();
      ASSERT_EQ(r->err(), "");
    }
  }
}

TEST(Log, DebugTellsWhenWorldsAreMadeAndEnd) {
  process p(job_command(3, {"work"}), {{"CROSSWARP_LOG", "debug"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  const auto all = log_lines(p);
  EXPECT_EQ(all.size(), p.error_lines().size()) << "each line has the form: " << p.report();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(count(all, r, "debug", "world made: ranks 3, nodes 1, device cpu"), 1) << p.report();
    EXPECT_EQ(count(all, r, "debug", "world ended"), 1) << p.report();
  }
}

TEST(Log, InfoTellsTheEngine) {
  process p(
      job_command(2, {"work"}),
      {{"CROSSWARP_LOG", "info"}, {"CROSSWARP_PATH", "proxy"}, {"CROSSWARP_ENGINE", "local"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  const auto all = log_lines(p);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(count(all, r, "info", "engine local"), 1) << p.report();
  EXPECT_EQ(count(all, 0, "debug", ""), 0) << "more than asked for: " << p.report();
}

TEST(Log, SecretIsNeverInIt) {
  process p(job_command(3, {"tell_secret"}), {{"CROSSWARP_LOG", "trace"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  ASSERT_EQ(p.code(), 0) << p.report();
  const std::string said = p.lines().front();
  const std::string secret = said.substr(said.rfind(' ') + 1);
  ASSERT_EQ(secret.size(), 32U) << said;
  EXPECT_THAT(p.err(), HasSubstr("crosswarp trace rank 1"));
  EXPECT_THAT(p.err(), Not(HasSubstr(secret)));
}

// ---- when something is not

TEST(Log, LostRankIsNamedOnceByEachOther) {
  for (const int who : {0, 1}) {
    process p(job_command(3, {"lose_while_busy", std::to_string(who)}));
    ASSERT_TRUE(p.wait(limit)) << p.report();
    const auto all = log_lines(p);
    EXPECT_EQ(all.size(), 2U) << p.report();
    for (int r = 0; r < 3; ++r) {
      // By the world, or by its end when that has come.
      const std::string text = "peer lost (rank " + std::to_string(who) + ")";
      EXPECT_EQ(count(all, r, "error", text), r == who ? 0 : 1) << p.report();
    }
  }
}

// It used to be in the log, and then in what the waiting call threw.
TEST(Log, WhatAWaitingCallThrowsIsNotToldAgain) {
  for (const char* place : {"barrier", "get", "kernel"}) {
    for (const char* how : {"throw", "kill"}) {
      process p(job_command(3, {"lose", how, place, "2"}));
      ASSERT_TRUE(p.wait(limit)) << p.report();
      EXPECT_TRUE(log_lines(p).empty()) << p.report();
      EXPECT_THAT(p.out(), AllOf(HasSubstr("survivor 0: "), HasSubstr("survivor 1: ")));
    }
  }
}

// The others used to hear only that there was an exception.
TEST(Log, ExceptionIsToldToAllRanksWithItsCause) {
  process p(job_command(3, {"throw_in_run", "1"}));
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 9) << p.report();
  const std::string others = ": aborted (rank 1): this rank has had enough";
  // A rank that was busy when the news came has logged it, too.
  EXPECT_THAT(p.error_lines(), testing::IsSupersetOf<testing::Matcher<std::string>>(
                                   {AllOf(StartsWith("[0] rank program: "), HasSubstr(others)),
                                    "[1] rank program: this rank has had enough",
                                    AllOf(StartsWith("[2] rank program: "), HasSubstr(others)),
                                    "crosswarp: rank 1 exited with code 9"}));
  // Threads: what is thrown in the end does not say whose it was.
  process threads(rank_program({"throw_in_run", "1"}), {{"CROSSWARP_HEAP", "1M"}});
  ASSERT_TRUE(threads.wait(limit)) << threads.report();
  EXPECT_THAT(
      threads.error_lines(),
      ElementsAre(HasSubstr("crosswarp error rank 1: world: aborted: this rank has had enough"),
                  "rank program: this rank has had enough"));
}

TEST(Log, OffIsOff) {
  process p(job_command(3, {"lose", "kill", "barrier", "1"}), {{"CROSSWARP_LOG", "off"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_TRUE(log_lines(p).empty()) << p.report();
}

// A program that never asks how its kernels ended used to end as if all were well.
TEST(Log, DeadlineThatNobodyAskedForIsToldAtTheEnd) {
  process p(job_command(2, {"end_while_kernel_waits", "0"}), {{"CROSSWARP_TIMEOUT", "1"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  const auto all = log_lines(p);
  EXPECT_EQ(count(all, 0, "error", "kernel: timeout (rank 1)"), 1) << p.report();
}

TEST(Log, DeadlineThatWasAskedForIsNotToldAgain) {
  process p(job_command(3, {"lose", "stop", "kernel", "1"}), {{"CROSSWARP_TIMEOUT", "2"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  for (const int r : {0, 2}) {
    EXPECT_EQ(count(log_lines(p), r, "error", "kernel: timeout"), 0) << p.report();
  }
}

TEST(Log, StrangersAreToldAtDebug) {
  process p(job_command(2, {"pester", "3"}), {{"CROSSWARP_LOG", "debug"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_GE(count(log_lines(p), -1, "debug", "refused 127.0.0.1:"), 1) << p.report();
}

// ---- the proxy

std::vector<std::string> proxy_command(const std::string& nodes, const std::string& behaviour) {
  return {CROSSWARP_COMMAND,       "run",    "-n", "2", "--nodes", nodes, "--heap", "1M",
          CROSSWARP_PROXY_PROGRAM, behaviour};
}

// A kernel may fail a million times before its quiet, and may never ask.
TEST(Log, CommandsThatNobodyWaitsForAreToldOnceForEachRankAndReason) {
  process p(proxy_command("1", "misuse"), {{"CROSSWARP_ENGINE", "local"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.out(), HasSubstr("kernel: invalid"));
  const auto all = log_lines(p);
  EXPECT_EQ(all.size(), 2U) << p.report();
  const std::string outside =
      "proxy: put_value: invalid: offset 0x10000000000 + 8 bytes is outside of the heap of ";
  EXPECT_EQ(count(all, 0, "error", outside), 1) << p.report();
  EXPECT_EQ(count(all, 0, "error", " bytes (rank 1 of 2, queue 0)"), 1) << p.report();
  EXPECT_EQ(count(all, 0, "error",
                  "proxy: put_value: invalid: there is no such rank (rank 2 of 2, queue 0)"),
            1)
      << "of all those that are none: " << p.report();
}

TEST(Log, AddressesThatCannotBeCheckedAreToldOnce) {
  process p(proxy_command("1", "sandboxed"), {{"CROSSWARP_ENGINE", "local"}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  if (p.code() == 3) GTEST_SKIP() << "calls cannot be forbidden here";
  EXPECT_EQ(p.code(), 0) << p.report();
  const auto all = log_lines(p);
  EXPECT_EQ(all.size(), 2U) << "one of each process: " << p.report();
  EXPECT_EQ(count(all, -1, "warn", "process_vm_readv is forbidden here"), 2) << p.report();
}

TEST(Log, EngineThatDoesNotLoadIsToldWithTheReason) {
  process p(job_command({"-n", "2", "--nodes", "2"}, {"work"}),
            {{"CROSSWARP_ENGINE_PATH", CROSSWARP_BROKEN_ENGINES}});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  const auto all = log_lines(p);
  EXPECT_EQ(count(all, -1, "warn", "engine ucx does not load: "), 2) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("crosswarp_ucx.so: file too short"));
}

// Whoever knocks may say what it likes; what is told of it stays one line.
TEST(Log, LineStaysALine) {
  process p(job_command(2, {"abort_with", "one\ntwo\x1b[2J"}));
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(count(log_lines(p), 1, "error", "one two [2J"), 1) << p.report();
}

// ---- nonsense

TEST(LogLevel, NonsenseIsRefusedWithTheChoices) {
  const environment e = {{"CROSSWARP_LOG", "loud"}, {"CROSSWARP_HEAP", "1M"}};
  const auto choices = AllOf(HasSubstr("CROSSWARP_LOG"), HasSubstr("loud"),
                             HasSubstr("off, error, warn, info, debug, trace"));
  process job(job_command(2, {"work"}), e);
  ASSERT_TRUE(job.wait(limit));
  EXPECT_EQ(job.code(), 2) << job.report();
  EXPECT_THAT(job.error_lines(), ElementsAre(AllOf(StartsWith("crosswarp: "), choices)));
  process alone(rank_program({"work"}), e);
  ASSERT_TRUE(alone.wait(limit));
  EXPECT_EQ(alone.code(), 9) << alone.report();
  EXPECT_THAT(alone.err(), choices);
}

}  // namespace
