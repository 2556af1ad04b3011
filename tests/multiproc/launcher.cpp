// crosswarp run: output, exit codes, signals, bad options, and what is left afterwards; how the
// command answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jobs.hpp"

namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// Generous: what is measured here is that things end, on a machine that may be busy.
constexpr auto limit = seconds(30);

std::string whole_line(int rank, int i) {
  return "line " + std::to_string(i) + " of " + std::to_string(rank) + " " + std::string(40, 'x') +
         std::string(40, 'y');
}

// ---- output

TEST(LauncherOutput, LinesArePrefixedByRankAndWhole) {
  constexpr int ranks = 4;
  constexpr int count = 200;
  process p(job_command(ranks, {"print_lines", std::to_string(count)}));
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  for (const auto& lines : {p.lines(), p.error_lines()}) {
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(ranks * count)) << p.report();
    int next[ranks] = {};
    for (const std::string& line : lines) {
      ASSERT_TRUE(line.size() > 4 && line[0] == '[' && line[2] == ']') << line;
      const int r = line[1] - '0';
      ASSERT_TRUE(r >= 0 && r < ranks) << line;
      ASSERT_EQ(line, "[" + std::to_string(r) + "] " + whole_line(r, next[r]++));
    }
  }
}

TEST(LauncherOutput, NoPrefixPassesBytesOnAsTheyAre) {
  process p(job_command({"-n", "1", "--no-prefix"}, {"print_unfinished"}));
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.out(), "first\n\nlast words");
  EXPECT_EQ(p.err(), "complaint");
}

TEST(LauncherOutput, LastWordsWithoutNewlineAreNotLost) {
  process p(job_command(2, {"print_unfinished"}));
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_THAT(p.lines(), UnorderedElementsAre("[0] first", "[0] ", "[0] last words", "[1] first",
                                              "[1] ", "[1] last words"));
  EXPECT_THAT(p.error_lines(), UnorderedElementsAre("[0] complaint", "[1] complaint"));
}

TEST(LauncherOutput, LongLinesArriveWhole) {
  process p(job_command(3, {"print_long_line", "60000"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_THAT(p.lines(), UnorderedElementsAre("[0] " + std::string(60000, 'a'),
                                              "[1] " + std::string(60000, 'b'),
                                              "[2] " + std::string(60000, 'c')));
}

// A line without end must not fill the launcher's memory, so it may come in pieces: each of one
// rank, prefixed, and nothing missing.
TEST(LauncherOutput, EndlessLinesComeInWholePieces) {
  constexpr std::size_t length = 3'000'000;
  process p(job_command(2, {"print_long_line", std::to_string(length)}));
  ASSERT_TRUE(p.wait(limit));
  std::size_t seen[2] = {};
  for (const std::string& line : p.lines()) {
    ASSERT_THAT(line, AnyOf(StartsWith("[0] "), StartsWith("[1] ")));
    const char letter = line[1] == '0' ? 'a' : 'b';
    ASSERT_EQ(line.find_first_not_of(letter, 4), std::string::npos) << "two ranks in one line";
    seen[letter - 'a'] += line.size() - 4;
  }
  EXPECT_THAT(seen, ElementsAre(length, length));
}

// ---- exit codes

TEST(LauncherExit, SuccessOfAllIsSuccess) {
  process p(job_command(4, {"work"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.lines(), UnorderedElementsAre("[0] done 0 of 4", "[1] done 1 of 4",
                                              "[2] done 2 of 4", "[3] done 3 of 4"));
  EXPECT_EQ(p.err(), "");
}

TEST(LauncherExit, FailingCodeIsReturnedAndTheOthersAreEnded) {
  for (const int rank : {0, 2}) {
    process p(job_command(3, {"exit_code", std::to_string(rank), "42"}));
    ASSERT_TRUE(p.wait(seconds(10))) << p.report();
    EXPECT_EQ(p.code(), 42) << p.report();
    EXPECT_THAT(p.err(), HasSubstr("rank " + std::to_string(rank) + " exited with code 42"));
    EXPECT_EQ(p.left_after(milliseconds(0)), "");
  }
}

TEST(LauncherExit, FirstFailingCodeInTimeWins) {
  process p(job_command(4, {"exit_in_turn", "250"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 11) << p.report();
}

// What follows from a failure must not hide it: the others end as soon as they notice, and with a
// code of their own.
TEST(LauncherExit, FirstFailureIsNamedNotWhatFollowsFromIt) {
  for (int again = 0; again < 15; ++again) {
    process p(job_command(3, {"lose", "exit", "barrier", "2"}));
    ASSERT_TRUE(p.wait(limit));
    ASSERT_EQ(p.code(), 7) << p.report();
    ASSERT_THAT(p.err(), HasSubstr("rank 2 exited with code 7"));
  }
}

// The launcher used to name a victim.
TEST(LauncherExit, RankThatLeavesEarlyIsNamedThoughItsCodeIsZero) {
  for (int again = 0; again < 5; ++again) {
    process p(job_command(3, {"lose", "leave", "barrier", "2"}));
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 9) << p.report();
    EXPECT_THAT(p.err(),
                HasSubstr("crosswarp: rank 2 exited with code 0 while others still needed it; "
                          "then rank "));
  }
}

TEST(LauncherExit, DeathBySignalIs128PlusSignalAndNamesTheRank) {
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT}) {
    process p(job_command(3, {"die_by", "1", std::to_string(number)}));
    ASSERT_TRUE(p.wait(seconds(10))) << p.report();
    EXPECT_EQ(p.code(), 128 + number) << p.report();
    EXPECT_THAT(p.err(), HasSubstr("rank 1 was killed by signal " + std::to_string(number)));
    EXPECT_EQ(p.left_after(milliseconds(0)), "");
  }
}

TEST(LauncherExit, MissingProgramIs127) {
  for (const char* program : {"./there-is-no-such-program", "there-is-no-such-program"}) {
    process p({CROSSWARP_COMMAND, "run", "-n", "3", program});
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 127) << p.report();
    EXPECT_THAT(p.err(), HasSubstr("there-is-no-such-program"));
  }
}

TEST(LauncherExit, ProgramThatCannotBeExecutedIs126) {
  char file[] = "/tmp/not-a-program-XXXXXX";
  const int fd = mkstemp(file);
  ASSERT_GE(fd, 0);
  close(fd);
  process p({CROSSWARP_COMMAND, "run", "-n", "2", file});
  EXPECT_TRUE(p.wait(limit));
  unlink(file);
  EXPECT_EQ(p.code(), 126) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("not-a-program"));
  process folder({CROSSWARP_COMMAND, "run", "-n", "2", "/"});
  ASSERT_TRUE(folder.wait(limit));
  EXPECT_EQ(folder.code(), 126) << folder.report();
}

TEST(LauncherExit, ArgumentsOfTheProgramAreItsOwn) {
  process p({CROSSWARP_COMMAND, "run", "-n", "1", "printf", "%s|%s|%s\n", "-n", "--heap", "a b"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.out(), "[0] -n|--heap|a b\n") << p.report();
}

TEST(LauncherExit, TwoDashesEndTheOptionsAndAreNotPassedOn) {
  process p({CROSSWARP_COMMAND, "run", "-n", "1", "--", "printf", "%s|%s|\n", "a", "--"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.out(), "[0] a|--|\n") << p.report();
}

// ---- signals

class LauncherSignal : public testing::TestWithParam<int> {};

TEST_P(LauncherSignal, ReachesAllRanksAndEndsTheJob) {
  process p(job_command(3, {"wait_for_signal", "polite"}));
  ASSERT_TRUE(p.wait_for("ready", 3)) << p.report();
  p.kill(GetParam());
  ASSERT_TRUE(p.wait(seconds(10))) << p.report();
  for (const char* rank : {"[0]", "[1]", "[2]"}) {
    EXPECT_THAT(p.out(), HasSubstr(rank + std::string(" got ") + std::to_string(GetParam())));
  }
  EXPECT_EQ(p.code(), 128 + GetParam()) << p.report();
}

TEST_P(LauncherSignal, KillsRanksThatIgnoreIt) {
  process p(job_command(2, {"wait_for_signal", "deaf"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  p.kill(GetParam());
  ASSERT_TRUE(p.wait(seconds(8))) << p.report();
  EXPECT_NE(p.code(), 0);
  EXPECT_EQ(p.left_after(milliseconds(0)), "");
}
INSTANTIATE_TEST_SUITE_P(Ending, LauncherSignal, testing::Values(SIGTERM, SIGINT));

TEST(LauncherSignals, UserSignalsAreForwardedAndEndNothing) {
  process p(job_command(2, {"wait_for_signal", "polite"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  for (const int number : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    const std::string got = "got " + std::to_string(number);
    const int before = p.out().find(got) != std::string::npos ? 2 : 0;
    p.kill(number);
    ASSERT_TRUE(p.wait_for(got, before + 2, seconds(10))) << p.report();
  }
  EXPECT_EQ(p.code(), -1) << "the job goes on";
  p.kill(SIGTERM);
  ASSERT_TRUE(p.wait(seconds(10)));
}

TEST(LauncherSignals, DefaultEndIsByTheSignal) {
  process p(job_command(2, {"wait_for_signal"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  p.kill(SIGTERM);
  ASSERT_TRUE(p.wait(seconds(8)));
  EXPECT_EQ(p.code(), 128 + SIGTERM) << p.report();
}

TEST(LauncherSignals, SecondInterruptDoesNotWait) {
  process p(job_command(2, {"wait_for_signal", "deaf"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  p.kill(SIGINT);
  usleep(100'000);  // two of one kind that are pending at once are one
  p.kill(SIGINT);
  ASSERT_TRUE(p.wait(seconds(8)));
  EXPECT_EQ(p.code(), 128 + SIGKILL) << p.report();
}

// Whoever reads the output may have stopped to: the launcher still does what it is told.
TEST(LauncherSignals, EndTheJobWhenNobodyReadsItsOutput) {
  process p(job_command(2, {"print_lines", "20000"}));
  usleep(500'000);  // the pipe is full
  p.kill(SIGTERM);
  EXPECT_EQ(p.left_after(seconds(8)), "");
}

// ---- bad options

struct bad_options {
  std::vector<std::string> options;
  const char* says;
};
void PrintTo(const bad_options& b, std::ostream* to) {
  for (const std::string& o : b.options) *to << o << ' ';
}

class LauncherRefuses : public testing::TestWithParam<bad_options> {};

TEST_P(LauncherRefuses, BadOptionsBeforeAnythingIsStarted) {
  process p(job_command(GetParam().options, {"print_unfinished"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2) << p.report();
  EXPECT_EQ(p.out(), "") << "nothing is started";
  EXPECT_THAT(p.err(), Not(HasSubstr("complaint"))) << "nothing is started";
  EXPECT_THAT(p.error_lines(),
              ElementsAre(AllOf(StartsWith("crosswarp: "), HasSubstr(GetParam().says))));
}
INSTANTIATE_TEST_SUITE_P(
    Options, LauncherRefuses,
    testing::Values(bad_options{{"-n", "0"}, "0 ranks"}, bad_options{{"-n", "-1"}, "-1"},
                    bad_options{{"--ranks=-1"}, "-1 ranks"},
                    bad_options{{"-n", "1000000"}, "1000000 ranks"},
                    bad_options{{"-n", "99999999999999"}, "99999999999999"},
                    bad_options{{"-n", "two"}, "--ranks: 'two' is not a number of ranks"},
                    bad_options{{"-n", "2x"}, "2x"},
                    bad_options{{"-n", "2", "--nodes", "x"}, "'x' is not a number of machines"},
                    bad_options{{"-n", "1.5"}, "1.5"}, bad_options{{"-n", ""}, "ranks"},
                    bad_options{{}, "required"},
                    bad_options{{"-n", "2", "--nodes", "0"}, "0 nodes"},
                    bad_options{{"-n", "2", "--nodes=-1"}, "-1 nodes"},
                    bad_options{{"-n", "2", "--nodes", "3"}, "3 nodes for 2 ranks"},
                    bad_options{{"-n", "2", "--heap", "garbage"}, "--heap or CROSSWARP_HEAP"},
                    bad_options{{"-n", "2", "--heap", "1000T"}, "lower --heap of crosswarp run"},
                    bad_options{{"-n", "2", "--trace", "/nowhere/t.json"},
                                "--trace: system error: /nowhere/t.json: No such file"},
                    bad_options{{"-n", "2", "--heap", "64Q"}, "64Q"},
                    bad_options{{"-n", "2", "--heap=-5"}, "-5"},
                    bad_options{{"-n", "2", "--heap", "99999999999999999999"}, "not a size"},
                    bad_options{{"-n", "2", "--heap", "1000T"}, "out of memory"},
                    bad_options{{"-n", "2", "--heap", "18446744073709551615"}, "out of memory"},
                    bad_options{{"-n", "2", "--device", "nonsense"}, "nonsense"},
                    bad_options{{"-n", "2", "--device", "cuda:x"}, "cuda:x"},
                    bad_options{{"-n", "2", "--no-such-option"}, "no-such-option"}));

TEST(LauncherRefusesAlso, NoProgram) {
  process p({CROSSWARP_COMMAND, "run", "-n", "2"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2);
  EXPECT_THAT(p.err(), HasSubstr("command"));
}

TEST(LauncherRefusesAlso, MoreRanksThanOpenFilesAllow) {
  std::string script = "ulimit -n 40; exec";
  for (const std::string& word : job_command(64, {"work"})) script += " '" + word + "'";
  process p({"sh", "-c", script});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_NE(p.code(), 0);
  EXPECT_THAT(p.err(), HasSubstr("ulimit -n"));
  EXPECT_EQ(p.left_after(seconds(3)), "");
}

// ---- the command line

struct misuse {
  std::vector<std::string> words;
  const char* says;
};
void PrintTo(const misuse& m, std::ostream* to) {
  for (const std::string& w : m.words) *to << w << ' ';
}

process command(std::vector<std::string> words) {
  words.insert(words.begin(), CROSSWARP_COMMAND);
  return process(words);
}

class CommandLine : public testing::TestWithParam<misuse> {};

TEST_P(CommandLine, MisuseIsToldInOneLineThatNamesIt) {
  process p = command(GetParam().words);
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2) << p.report();
  EXPECT_EQ(p.out(), "");
  EXPECT_THAT(p.error_lines(),
              ElementsAre(AllOf(StartsWith("crosswarp: "), HasSubstr(GetParam().says))));
}
INSTANTIATE_TEST_SUITE_P(
    Words, CommandLine,
    testing::Values(
        misuse{{}, "subcommand is required"},
        misuse{{"frobnicate"}, "unknown subcommand 'frobnicate'"},
        misuse{{"--loud"}, "unknown option '--loud'"},
        misuse{{"info", "--loud"}, "info: unknown option '--loud'"},
        misuse{{"info", "more"}, "info: unknown argument 'more'"},
        misuse{{"bench"}, "bench: names is required"},
        misuse{{"bench", "--loud"}, "bench: unknown option '--loud'; there are --device, "},
        misuse{{"bench", "exec", "--op", "put"},
               "--op: invalid argument: only bench shmem, coll and graph have it"},
        misuse{{"bench", "proxy", "--path", "ucx"}, "--path: invalid argument: only bench shmem"},
        misuse{{"bench", "shmem", "--op", "jump"}, "put, get, p, g, amo, signal, barrier"},
        misuse{{"bench", "nothing"}, "'nothing' is none of exec, memory, proxy"},
        misuse{{"bench", "exec", "--plot", "/nowhere/p.svg"},
               "--plot: system error: /nowhere/p.svg: No such file or directory"},
        misuse{{"tour", "--report", "/nowhere/p.html"},
               "--report: system error: /nowhere/p.html: No such file or directory"},
        misuse{{"tour", "--device", "abacus"}, "abacus"}));

// What was not measured was shown as 0.
TEST(Command, BenchFailsWithTheStatusOfItsKernel) {
  process p({CROSSWARP_COMMAND, "run", "-n", "1", "--heap", "8M", CROSSWARP_COMMAND, "bench-rank",
             "shmem-single", "/dev/null", "--quick"});  // there is no PE 1
  ASSERT_TRUE(p.wait(limit));
  EXPECT_NE(p.code(), 0) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("bench: device fault: invalid"));
}

TEST(Command, HelpIsOutputAndSuccess) {
  for (const char* of : {"run", "info", "doctor", "bench", "tour"}) {
    process p = command({of, "--help"});
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 0) << p.report();
    EXPECT_EQ(p.err(), "");
    EXPECT_THAT(p.out(),
                AllOf(HasSubstr("Usage: crosswarp " + std::string(of)), Not(HasSubstr("{false}"))));
  }
  process whole = command({"--help"});
  ASSERT_TRUE(whole.wait(limit));
  EXPECT_EQ(whole.code(), 0) << whole.report();
  EXPECT_THAT(whole.out(), HasSubstr("tour"));
}

// A misspelt variable used to show in nothing but what it did not do.
TEST(Command, WarnsOnceOfVariablesThatNobodyReads) {
  const environment e = {{"CROSSWARP_TIMOUT", "5"},
                         {"CROSSWARP_TIMEOUT", "20"},
                         {"CROSSWARP_HEAP", "1M"},
                         {"CROSSWARP_TEST_SOMETHING", "1"}};
  const auto warning = AllOf(HasSubstr("CROSSWARP_TIMOUT is set, but nobody reads it"),
                             HasSubstr("did you mean CROSSWARP_TIMEOUT?"));
  const std::vector<std::vector<std::string>> commands = {
      {CROSSWARP_COMMAND, "info"},
      job_command(3, {"work"}),
      {CROSSWARP_COMMAND, "run", "-n", "2", CROSSWARP_COMMAND, "info"}};
  for (const auto& words : commands) {
    process p(words, e);
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 0) << p.report();
    EXPECT_THAT(p.error_lines(), ElementsAre(AllOf(StartsWith("crosswarp: "), warning)));
  }
  process alone(rank_program({"work"}), e);
  ASSERT_TRUE(alone.wait(limit));
  EXPECT_THAT(alone.error_lines(), ElementsAre(AllOf(HasSubstr("crosswarp warn"), warning)));
}

TEST(Command, InfoTellsWhatIsBuiltIn) {
  process p = command({"info", "--json"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 0) << p.report();
  for (const char* feature :
       {"cuda", "fibers", "pmix", "topology", "checked", "schedules", "io_uring"}) {
    EXPECT_THAT(p.out(), HasSubstr("\"" + std::string(feature) + "\": "));
  }
}

TEST(Command, InfoTellsWhichEnginesThereAre) {
  process text = command({"info"});
  ASSERT_TRUE(text.wait(limit));
  EXPECT_THAT(text.out(),
              AllOf(HasSubstr("\nengines of the proxy\n  local    built in\n  ucx      "),
                    HasSubstr("\n  mpi      ")));
  process p = command({"info", "--json"});
  ASSERT_TRUE(p.wait(limit));
  const auto all = nlohmann::json::parse(p.out())["engines"];
  ASSERT_EQ(all.size(), 3U) << p.report();
  EXPECT_EQ(all[1]["name"], "ucx");
  EXPECT_EQ(all[1]["found"], CROSSWARP_HAVE_UCX != 0) << p.report();
  for (const auto& e : all) EXPECT_NE(e["where_or_why"], "") << p.report();
}

TEST(Command, InfoTellsWhichEngineSocketsHave) {
  const auto of = [](const std::string& wanted) {
    process p({CROSSWARP_COMMAND, "info", "--json"}, {{"CROSSWARP_SOCKET_ENGINE", wanted}});
    EXPECT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 0) << p.report();
    return nlohmann::json::parse(p.out())["sockets"];
  };
  EXPECT_EQ(of("epoll")["engine"], "epoll");
  const auto completions = of("io_uring");
  EXPECT_EQ(completions["engine"],
            completions["no_io_uring_because"].is_null() ? "io_uring" : "epoll");
  EXPECT_THAT(of("kqueue")["wrong"].get<std::string>(), HasSubstr("auto, epoll or io_uring"));
}

TEST(Command, InfoListsRdmaDevices) {
  process text = command({"info"});
  ASSERT_TRUE(text.wait(limit));
  EXPECT_THAT(text.out(), HasSubstr("\nrdma devices\n  soft0    port 1 ACTIVE, backend soft\n"));
  process p = command({"info", "--json"});
  ASSERT_TRUE(p.wait(limit));
  const auto all = nlohmann::json::parse(p.out())["rdma"];
  ASSERT_GE(all.size(), 1U) << p.report();
  EXPECT_EQ(all[0]["name"], "soft0");
  EXPECT_EQ(all[0]["ports"][0]["state"], "ACTIVE");
}

// ---- what is left

TEST(LauncherLeavesNothing, GrandchildrenGoWithTheJob) {
  for (const char* output : {"quiet", "loud"}) {
    process p(job_command(2, {"leave_grandchild", output, "end"}));
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 0) << p.report();
    EXPECT_EQ(p.left_after(seconds(1)), "");
  }
}

TEST(LauncherLeavesNothing, KilledLauncherTakesRanksAndGrandchildrenWithIt) {
  process p(job_command(3, {"leave_grandchild", "loud"}));
  ASSERT_TRUE(p.wait_for("ready", 3)) << p.report();
  EXPECT_EQ(p.alive().size(), 8U) << "launcher, guard, ranks and grandchildren";
  p.kill(SIGKILL);
  EXPECT_EQ(p.left_after(seconds(3)), "");
}

TEST(LauncherLeavesNothing, KilledLauncherTakesDeafRanksWithIt) {
  process p(job_command(2, {"wait_for_signal", "deaf"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  p.kill(SIGKILL);
  EXPECT_EQ(p.left_after(seconds(3)), "");
}

TEST(LauncherLeavesNothing, DeadGuardHarmsNobody) {
  process p(job_command(2, {"wait_for_signal"}));
  ASSERT_TRUE(p.wait_for("ready", 2)) << p.report();
  for (const job_process& j : p.alive()) {
    if (j.name == "crosswarp-guard") ::kill(j.pid, SIGKILL);
  }
  usleep(100'000);
  p.kill(SIGTERM);
  ASSERT_TRUE(p.wait(seconds(8))) << p.report();
  EXPECT_EQ(p.left_after(seconds(1)), "");
}

TEST(LauncherLeavesNothing, FullSharedMemoryFileSystemDoesNotMatter) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a file system needs root";
  std::string script =
      "mount -t tmpfs -o size=64k none /dev/shm || exit 77;"
      "head -c 1000000 /dev/zero > /dev/shm/fill 2> /dev/null;"
      "echo more 2> /dev/null > /dev/shm/more && test -s /dev/shm/more && exit 78;"
      "exec";
  for (const std::string& word : job_command(2, {"work"})) script += " '" + word + "'";
  process p({"unshare", "-m", "sh", "-c", script});
  ASSERT_TRUE(p.wait(limit)) << p.report();
  if (p.code() == 77 || p.err().find("unshare failed") != std::string::npos) {
    GTEST_SKIP() << "no private mount here: " << p.err();
  }
  ASSERT_NE(p.code(), 78) << "it should have been full";
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_THAT(p.lines(), UnorderedElementsAre("[0] done 0 of 2", "[1] done 1 of 2"));
}

// ---- shapes of a job

TEST(LauncherStart, SixtyFourRanksMeetAndEnd) {
  process p(job_command(64, {"work"}));
  ASSERT_TRUE(p.wait(seconds(60))) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_EQ(p.lines().size(), 64U);
  EXPECT_EQ(p.left_after(milliseconds(0)), "");
}

TEST(LauncherStart, PretendedNodesShareNoMemory) {
  process p(job_command({"-n", "4", "--nodes", "2"}, {"show_paths"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 0) << p.report();
  const std::string far = CROSSWARP_HAVE_UCX != 0 ? "proxy (ucx)" : "none";
  EXPECT_THAT(p.lines(), UnorderedElementsAre(
                             "[0] rank 0 nodes 2 0:self 0:memfd 1:" + far + " 1:" + far,
                             "[1] rank 1 nodes 2 0:memfd 0:self 1:" + far + " 1:" + far,
                             "[2] rank 2 nodes 2 0:" + far + " 0:" + far + " 1:self 1:memfd",
                             "[3] rank 3 nodes 2 0:" + far + " 0:" + far + " 1:memfd 1:self"));
}

// "Never" is a number that somebody will write.
TEST(LauncherStart, VeryLongDeadlinesAreLongOrRefused) {
  for (const char* timeout : {"9223372036", "10000000000", "9223372036854775807"}) {
    process p(job_command(2, {"work"}), {{"CROSSWARP_TIMEOUT", timeout}});
    ASSERT_TRUE(p.wait(limit));
    EXPECT_TRUE(p.code() == 0 || p.err().find("CROSSWARP_TIMEOUT") != std::string::npos)
        << timeout << ": " << p.report();
  }
}

TEST(LauncherStart, NodesMayBeUnequal) {
  process p(job_command({"-n", "3", "--nodes", "2"}, {"work"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 0) << p.report();
}

}  // namespace
