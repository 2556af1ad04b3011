// crosswarp tune: measures all_reduce's algorithms on this machine, and writes the table by which
// collectives choose.
#include "benchmarks/tune.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "coll/tuning.hpp"
#include "commands.hpp"
#include "run_benchmarks.hpp"

namespace crosswarp::tool {
namespace {

namespace fs = std::filesystem;

std::string file_of(const tune_options& o) {
  if (!o.out.empty()) return o.out;
  if (const auto file = coll_impl::tuning_file()) return *file;
  throw error(errc::invalid_argument, "--out",
              "CROSSWARP_TUNING and the environment name no file; say where to write it");
}

/// Written beside the file and then put in its place: who reads it meanwhile has the one or the
/// other.
class replacement {
 public:
  explicit replacement(const std::string& file) : file_(file), beside_(file + ".new") {
    std::error_code bad;
    if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) {
      fs::create_directories(folder, bad);
    }
    if (bad) throw error(errc::system, "--out", file + ": " + bad.message());
    out_ = create_file(beside_, "--out");
  }
  ~replacement() {
    std::error_code ignored;
    fs::remove(beside_, ignored);
  }
  replacement(const replacement&) = delete;
  replacement& operator=(const replacement&) = delete;

  void finish(const std::string& text) {
    out_ << text;
    out_.close();
    if (!out_) throw error::from_errno(errno, "--out", beside_);
    std::error_code bad;
    fs::rename(beside_, file_, bad);
    if (bad) throw error(errc::system, "--out", file_ + ": " + bad.message());
  }

 private:
  std::string file_;
  std::string beside_;
  std::ofstream out_;
};

void put(coll_impl::tuning_table& table, const coll_impl::tuned& line) {
  for (coll_impl::tuned& t : table) {
    if (t.device != line.device || t.ranks != line.ranks) continue;
    t = line;
    return;
  }
  table.push_back(line);
}

}  // namespace

int tune(const tune_options& o) {
  const std::string file = file_of(o);
  bench::setup s;
  s.device = device_ref::parse(o.device);
  prepare_shared_gpu(s.device);
  s.processes = s.device.kind() == device_kind::cpu;
  s.quick = o.quick;
  s.bytes_to = s.processes ? 1U << 20U : 4U << 20U;
  coll_impl::tuning_table table;
  if (!o.replace && fs::exists(file)) table = coll_impl::read_tuning(file);
  replacement next(file);
  const std::string device = coll_impl::description_of(s.device);
  std::vector<int> ranks = o.ranks;
  if (ranks.empty()) ranks = {2, 4, 8};
  for (const int n : ranks) {
    s.ranks = n;
    const auto rows = run_ranks("coll-tune", s);
    const coll_tuning best = bench::best_tuning(rows);
    put(table, {device, n, best});
    if (o.times) fmt::print("{}\n", bench::table(rows));
    fmt::print("{} ranks on {}: push up to {} bytes, pull up to {}, blocks of {} and {}\n", n,
               device, best.push, best.pull, best.block, best.long_block);
    std::fflush(stdout);
  }
  next.finish(coll_impl::print_tuning(table));
  fmt::print("written to {}{}\n", file,
             coll_impl::tuning_file() == file
                 ? ""
                 : "; CROSSWARP_TUNING=" + file + " makes collectives choose by it");
  return 0;
}

}  // namespace crosswarp::tool
