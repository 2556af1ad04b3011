// What kernels do by loads and stores is counted and traced when that is asked for, and only then.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "crosswarp/shmem.hpp"
#include "crosswarp/world_launch.hpp"
#include "support/worlds.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace {

struct some_of_each {
  CW_FN void operator()(const dev::kernel_context& k, const dev::shmem& sh, std::uint64_t* box,
                        cw::status* out) const {
    const auto g = k.block();
    const int right = (sh.my_pe() + 1) % sh.n_pes();
    std::uint64_t seen = 0;
    cw::status s = sh.put(g, box, box + 8, 4, right);
    for (int i = 0; i < 3 && s == cw::status::ok; ++i) {
      s = sh.atomic_fetch(g, dev::amo::add, box + 16, std::uint64_t{1}, std::uint64_t{0}, right,
                          seen);
    }
    if (s == cw::status::ok)
      s = sh.put_signal(g, box, box + 8, 2, box + 17, 1, dev::signal_op::set, right);
    if (s == cw::status::ok) s = sh.signal_wait_until(g, box + 17, dev::compare::eq, 1);
    if (s == cw::status::ok) s = sh.quiet(g);
    if (s == cw::status::ok) s = sh.barrier(g);
    if (g.rank() == 0) *out = s;
  }
};

void run_some(cw::world& w) {
  cw::shmem sh(w);
  auto* const box = sh.allocate<std::uint64_t>(32);
  cw::buffer<cw::status> out(w.options().device, 1);
  w.barrier();
  cw::launch(w, {.threads = 4}, some_of_each{}, sh.device(), box, out.data());
  w.stream().sync();
  w.barrier();
  EXPECT_EQ(out.read()[0], cw::status::ok);
}

const cw::operation_stats* find(const std::vector<cw::operation_stats>& all, const char* name) {
  for (const auto& s : all) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

struct variable {
  variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~variable() { unsetenv(name_); }
  const char* name_;
};

TEST(ShmemProfile, CountsWhatIsMapped) {
  const variable asked("CROSSWARP_STATS", "1");
  on_ranks(2, [](cw::world& w) {
    run_some(w);
    auto all = w.stats();
    const auto* const put = find(all, "put, mapped");
    ASSERT_NE(put, nullptr);
    EXPECT_EQ(put->count, 1U);
    EXPECT_EQ(put->bytes, 32U);
    EXPECT_EQ(find(all, "put_signal, mapped")->bytes, 16U);
    EXPECT_EQ(find(all, "atomic add, mapped")->count, 3U);
    EXPECT_EQ(find(all, "quiet, mapped")->count, 1U);
    EXPECT_EQ(find(all, "barrier, mapped")->count, 1U);
    w.reset_stats();
    all = w.stats();
    EXPECT_EQ(find(all, "put, mapped")->count, 0U);
  });
}

TEST(ShmemProfile, IsNotThereUnlessAsked) {
  on_ranks(2, [](cw::world& w) {
    EXPECT_EQ(w.device().profile, nullptr);
    run_some(w);
    EXPECT_EQ(find(w.stats(), "put, mapped"), nullptr);
  });
}

TEST(ShmemProfile, IsInTheTrace) {
  const std::string file = ::testing::TempDir() + "shmem_profile." + std::to_string(getpid());
  {
    const variable asked("CROSSWARP_TRACE", file);
    on_ranks(2, run_some);
  }
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::remove(file.c_str());
  EXPECT_NE(text.str().find(R"("cat":"mapped","name":"put_signal")"), std::string::npos);
  EXPECT_NE(text.str().find(R"("cat":"mapped","name":"atomic add")"), std::string::npos);
}

}  // namespace
