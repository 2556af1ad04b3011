// Any process of a job is killed at any moment: nobody hangs, and nothing is left.
// CROSSWARP_TEST_KILLS: how many (40); CROSSWARP_TEST_SEED: to repeat the choices of a run.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <random>

#include "jobs.hpp"

namespace {

using std::chrono::microseconds;

unsigned long number_from(const char* variable, unsigned long fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::stoul(text);
}

/// Names of files that a job could have left.
std::set<std::string> files_of_jobs() {
  std::set<std::string> found;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    std::error_code gone;
    for (std::filesystem::directory_iterator it(folder, gone), end; it != end; it.increment(gone)) {
      if (it->path().filename().string().find("crosswarp") != std::string::npos) {
        found.insert(it->path());
      }
    }
  }
  return found;
}

/// A folder for the job's temporary files, which should stay empty.
class empty_folder {
 public:
  empty_folder() { static_cast<void>(mkdtemp(path_)); }
  ~empty_folder() { std::filesystem::remove_all(path_); }
  empty_folder(const empty_folder&) = delete;
  empty_folder& operator=(const empty_folder&) = delete;
  [[nodiscard]] std::string path() const { return path_; }
  /// What lies there. Not what ThreadSanitizer makes when a process starts and unlinks at once,
  /// unless the process is killed between the two.
  [[nodiscard]] std::set<std::string> files() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("tsan.rodata.")) found.insert(name);
    }
    return found;
  }

 private:
  char path_[32] = "/tmp/random-kills-XXXXXX";
};

/// LeakSanitizer looks from a process of its own, which would be taken for a rank and killed.
constexpr const char* no_helper = "detect_leaks=0";

struct plan {
  int ranks;
  int target;  ///< a rank, or -1: the launcher
  microseconds moment;
};

/// Kills the target, or the launcher when the target is not there; says what it killed.
std::string kill_one(const process& job, int target) {
  if (target >= 0) {
    for (const job_process& p : job.alive()) {
      // Its own children, and not the guard: forked, and perhaps not yet the rank's program.
      if (p.parent != job.pid() || p.name == "crosswarp-guard") continue;
      if (p.rank != target && p.rank >= 0) continue;
      ::kill(p.pid, SIGKILL);
      return "rank " + std::to_string(p.rank);
    }
  }
  job.kill(SIGKILL);
  return "the launcher";
}

microseconds duration_of(int ranks) {
  const auto start = process_clock::now();
  process job(job_command(ranks, {"work"}));
  EXPECT_TRUE(job.wait(seconds(30))) << job.report();
  EXPECT_EQ(job.code(), 0) << job.report();
  return std::chrono::duration_cast<microseconds>(process_clock::now() - start);
}

TEST(RandomKills, EndTheJobAndLeaveNothing) {
  const unsigned long kills = number_from("CROSSWARP_TEST_KILLS", 40);
  const unsigned long seed = number_from("CROSSWARP_TEST_SEED", std::random_device{}());
  std::printf("%lu kills, CROSSWARP_TEST_SEED=%lu\n", kills, seed);
  std::mt19937_64 random(seed);
  const auto before = files_of_jobs();
  const empty_folder temporary;
  microseconds usual[5] = {};
  for (const int ranks : {2, 3, 4}) usual[ranks] = duration_of(ranks);
  unsigned long done = 0;
  for (unsigned long i = 0; done < kills && i < 4 * kills; ++i) {
    plan what{static_cast<int>(2 + random() % 3), 0, {}};
    what.target = static_cast<int>(random() % static_cast<unsigned>(what.ranks + 1)) - 1;
    microseconds& expected = usual[what.ranks];
    what.moment = microseconds(random() % static_cast<unsigned long>(expected.count()));
    SCOPED_TRACE("job " + std::to_string(i) + ": " + std::to_string(what.ranks) + " ranks, rank " +
                 std::to_string(what.target) + " (-1: launcher) after " +
                 std::to_string(what.moment.count()) +
                 " us; CROSSWARP_TEST_SEED=" + std::to_string(seed));
    const auto start = process_clock::now();
    process job(job_command(what.ranks, {"work"}),
                {{"TMPDIR", temporary.path()}, {"LSAN_OPTIONS", no_helper}});
    if (job.wait(what.moment)) {
      ASSERT_EQ(job.code(), 0) << job.report();
      // How long a job takes changes with what else the machine does.
      expected = std::chrono::duration_cast<microseconds>(process_clock::now() - start);
      continue;
    }
    const std::string killed = kill_one(job, what.target);
    ASSERT_TRUE(job.wait(seconds(5))) << "killed " << killed << ": " << job.report();
    ASSERT_EQ(job.left_after(seconds(3)), "") << "killed " << killed << ": " << job.report();
    expected += expected / 32;
    ++done;
  }
  EXPECT_EQ(done, kills);
  EXPECT_EQ(files_of_jobs(), before);
  EXPECT_EQ(temporary.files(), std::set<std::string>{});
}

}  // namespace
