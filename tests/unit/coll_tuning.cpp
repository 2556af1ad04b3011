// Tables of tuning: what is written is read again, and what is no table is an error that says
// where.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "coll/shape.hpp"
#include "coll/tuning.hpp"
#include "crosswarp/error.hpp"

namespace cw = crosswarp;
using namespace crosswarp::coll_impl;

namespace {

const std::string good =
    "# of this machine\n"
    "crosswarp tuning 1\n"
    "\n"
    "device NVIDIA H200   # a GPU\n"
    "ranks 2  push 28672  pull 256K  block 8192  long_block 16K\n"
    "ranks 8 long_block 32768 block 4096 pull 0 push 0\r\n"
    "device Some CPU @ 2.00GHz\n"
    "ranks 2 push 8 pull 4K block 256 long_block 256\n";

void refused(const std::function<void()>& call, const std::string& why) {
  try {
    call();
    ADD_FAILURE() << "no error: " << why;
  } catch (const cw::error& e) {
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(Tuning, IsFoundByDeviceAndRanks) {
  const tuning_table table = parse_tuning(good, "t");
  ASSERT_EQ(table.size(), 3U);
  const tuned* const two = find_tuning(table, "NVIDIA H200", 2);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->values.push, 28672U);
  EXPECT_EQ(two->values.pull, 256U << 10U);
  EXPECT_EQ(two->values.block, 8192U);
  EXPECT_EQ(two->values.long_block, 16U << 10U);
  EXPECT_EQ(find_tuning(table, "NVIDIA H200", 8)->values.block, 4096U);
  EXPECT_EQ(find_tuning(table, "Some CPU @ 2.00GHz", 2)->values.push, 8U);
  EXPECT_EQ(find_tuning(table, "NVIDIA H200", 4), nullptr);
  EXPECT_EQ(find_tuning(table, "NVIDIA H100", 2), nullptr);
}

TEST(Tuning, ThatWasPrintedIsReadAgain) {
  const tuning_table table = parse_tuning(good, "t");
  const tuning_table again = parse_tuning(print_tuning(table), "t");
  EXPECT_EQ(print_tuning(again), print_tuning(table));
  ASSERT_EQ(again.size(), table.size());
  EXPECT_EQ(find_tuning(again, "NVIDIA H200", 2)->values.pull, 256U << 10U);
  EXPECT_TRUE(parse_tuning(print_tuning({}), "t").empty());
}

TEST(Tuning, ThatIsNoneIsToldWithFileAndLine) {
  const std::string head = "crosswarp tuning 1\ndevice X\n";
  const std::string rest = " push 1 pull 2 block 4096 long_block 4096\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "file:0: invalid argument: there is nothing"},
      {"# only this\n", "file:1: invalid argument: there is nothing"},
      {"{\"ranks\": 2}\n", "file:1: invalid argument: this is no 'crosswarp tuning 1'"},
      {"crosswarp tuning 2\n", "file:1: invalid argument: this is no"},
      {"crosswarp tuning 1\nranks 2" + rest, "file:2: invalid argument: no device"},
      {head + "ranks two" + rest, "file:3: invalid argument: 'two' is no number of ranks"},
      {head + "ranks 0" + rest, "'0' is no number of ranks"},
      {head + "ranks -4" + rest, "'-4' is no number of ranks"},
      {head + "ranks 99999999999999999999" + rest, "is no number of ranks"},
      {head + "ranks 2 push 1 pull 2 block 4096\n",
       "file:3: invalid argument: long_block is missing"},
      {head + "ranks 2 push 1" + rest, "push is there twice"},
      {head + "ranks 2 pusch 1" + rest, "'pusch' is none of push, pull"},
      {head + "ranks 2 push 1 pull 2 block 4096 long_block\n", "long_block has no number"},
      {head + "ranks 2 push -1 pull 2 block 4096 long_block 4096\n", "'-1' is not a size"},
      {head + "ranks 2 push 1.5 pull 2 block 4096 long_block 4096\n", "'1.5' is not a size"},
      {head + "ranks 2 push 1 pull 2 block 0 long_block 4096\n", "block is 0; 256 to"},
      {head + "ranks 2 push 1 pull 9999999999999 block 4096 long_block 4096\n",
       "pull is 9999999999999"},
      {head + "ranks 2" + rest + "ranks 2" + rest,
       "file:4: invalid argument: 2 ranks of X are there twice"},
      {head + "rank 2" + rest, "'rank' is neither device nor ranks"},
      {head + "device\n", "'device' is neither"},
  };
  for (const auto& [text, why] : bad) {
    refused([&, t = text] { (void)parse_tuning(t, "file"); }, why);
  }
}

/// Parts of a table in any order, cut anywhere, with any bytes between: an error or a table.
TEST(Tuning, OfAnyBytesIsNoCrash) {
  std::mt19937 random(7);
  int tables = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (unsigned changes = random() % 4; changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.erase(at, random() % 9);
      }
    }
    try {
      for (const tuned& t : parse_tuning(text, "file")) {
        EXPECT_GE(t.ranks, 1);
        EXPECT_GE(t.values.block, 256U);
        EXPECT_FALSE(t.device.empty());
      }
      ++tables;
    } catch (const cw::error&) {
      continue;
    }
  }
  EXPECT_GT(tables, 100);
  EXPECT_LT(tables, 19900);
}

// ---- files

class TuningFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cw-tuning-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    unsetenv("CROSSWARP_TUNING");
    setenv("XDG_CONFIG_HOME", (folder / "config").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("CROSSWARP_TUNING");
    unsetenv("XDG_CONFIG_HOME");
    std::filesystem::remove_all(folder);
  }
  static void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::filesystem::path folder;
};

TEST_F(TuningFiles, AreThoseOfTheUserUnlessOneIsNamed) {
  const auto own = folder / "config" / "crosswarp" / "tuning";
  EXPECT_EQ(tuning_file(), own.string());
  EXPECT_EQ(tuning_file_to_read(), std::nullopt) << "not there, and nobody asked for it";
  write(own, good);
  EXPECT_EQ(tuning_file_to_read(), own.string());
  setenv("CROSSWARP_TUNING", "/no/such/file", 1);
  EXPECT_EQ(tuning_file_to_read(), "/no/such/file");
  setenv("CROSSWARP_TUNING", "none", 1);
  EXPECT_EQ(tuning_file_to_read(), std::nullopt);
  unsetenv("CROSSWARP_TUNING");
  unsetenv("XDG_CONFIG_HOME");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HOME", folder.c_str(), 1);
  EXPECT_EQ(tuning_file(), (folder / ".config" / "crosswarp" / "tuning").string());
  unsetenv("HOME");
  EXPECT_EQ(tuning_file(), std::nullopt);
  setenv("HOME", home.c_str(), 1);
}

TEST_F(TuningFiles, ThatCannotBeReadAreTold) {
  const auto file = folder / "tuning";
  write(file, good);
  EXPECT_EQ(read_tuning(file.string()).size(), 3U);
  write(file, std::string(2U << 20U, '#'));
  refused([&] { (void)read_tuning(file.string()); }, "are no table of tuning");
  refused([&] { (void)read_tuning((folder / "other").string()); }, "No such file");
  refused([&] { (void)read_tuning(folder.string()); }, "it is no file");
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refused([&] { (void)read_tuning(pipe); }, "it is no file");
}

// ---- how a call is shared out

/// Barriers and empty calls had 32.
TEST(Shape, OfARankOnACpuHasOneThreadForAnyLength) {
  const shape_rules rules = rules_for(cw::device_kind::cpu, 3, 1, {});
  for (const std::size_t bytes : {0U, 1U, 8U, 4096U, 1U << 20U}) {
    for (const bool pushes : {false, true}) {
      EXPECT_EQ(shape_for(rules, bytes, 1, pushes).threads, 1) << bytes << " bytes";
    }
  }
}

TEST(Shape, HasNoMoreBlocksThanTheLeastRoomOfAllRanks) {
  const auto blocks = [](int ranks, int room) {
    return rules_for(cw::device_kind::cuda, ranks, room, {}).blocks;
  };
  EXPECT_EQ(blocks(2, 128), 64);
  EXPECT_EQ(blocks(2, 20), 20);
  EXPECT_EQ(blocks(8, 128), 16);
  EXPECT_EQ(blocks(1000, 128), 1);
}

}  // namespace
