#include "world_trace.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "core/log.hpp"
#include "crosswarp/options.hpp"
#include "proxy/proxy.hpp"
#include "socket.hpp"
#include "trace/write.hpp"

namespace crosswarp::world_impl {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// What to add to this machine's clock to have rank 0's. In an allgather everybody has come before
/// anybody leaves; each round narrows what the difference can be.
std::int64_t offset_to_rank_0(bootstrap& boot, nanoseconds timeout) {
  constexpr int rounds = 8;
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  std::uint64_t came_before = 0;
  std::uint64_t left_before = 0;
  const auto difference = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(a - b);
  };
  for (int i = 0; i <= rounds; ++i) {
    const std::uint64_t came = trace::machine_ns();
    const auto all = boot.allgather(packer().u64(came).u64(left_before).take(), timeout);
    const std::uint64_t left = trace::machine_ns();
    unpacker zero(all[0]);
    const std::uint64_t zero_came = zero.u64();
    const std::uint64_t zero_left_before = zero.u64();
    low = std::max(low, difference(zero_came, left));
    if (i > 0) high = std::min(high, difference(zero_left_before, came_before));
    came_before = came;
    left_before = left;
  }
  // Ranks of one machine share a clock.
  return low <= 0 && high >= 0 ? 0 : low + (high - low) / 2;
}

bytes pack(const trace::rank_events& mine) {
  const auto& all = mine.events.all;
  return packer()
      .text(mine.where)
      .u64(mine.events.dropped)
      .blob(std::as_bytes(std::span(all)))
      .take();
}

trace::rank_events unpack(int rank, const bytes& packed) {
  unpacker u(packed);
  trace::rank_events theirs;
  theirs.rank = rank;
  theirs.where = u.text();
  theirs.events.dropped = u.u64();
  const bytes all = u.blob();
  theirs.events.all.resize(all.size() / sizeof(trace::trace_record));
  std::copy_n(all.begin(), theirs.events.all.size() * sizeof(trace::trace_record),
              std::as_writable_bytes(std::span(theirs.events.all)).begin());
  return theirs;
}

std::string key_of(int rank) {
  return "trace." + std::to_string(rank);
}

/// The job goes on without its trace.
void write_or_log(const std::string& path, int rank, const std::vector<trace::rank_events>& all) {
  std::uint64_t dropped = 0;
  std::size_t kept = 0;
  for (const auto& r : all) {
    dropped += r.events.dropped;
    kept += r.events.all.size();
  }
  try {
    trace::write_json(path, all);
  } catch (const error& e) {
    log::error(rank, e.what(), "; ", kept, " events are lost");
    return;
  }
  log::info(rank, "trace of ", kept, " events written to ", path);
  if (dropped > 0) {
    log::warn(rank, "trace: there was no room for ", dropped,
              " events; CROSSWARP_TRACE_EVENTS makes more");
  }
}

}  // namespace

std::unique_ptr<world_trace> world_trace::begin(device_ref d, const bootstrap& boot) {
  auto path = crosswarp::options::read("CROSSWARP_TRACE");
  if (!path || d.scheduler() != nullptr) return nullptr;
  constexpr long usual = 200'000;
  constexpr long most = 1'500'000;  // what a member may send to rank 0 in one piece
  const long capacity = crosswarp::options::read_integer("CROSSWARP_TRACE_EVENTS").value_or(usual);
  if (capacity < 1 || capacity > most) {
    throw error(errc::invalid_argument, "CROSSWARP_TRACE_EVENTS",
                "1 to " + std::to_string(most) + " events");
  }
  // Rank 0 has one file for each of its worlds, others write one only when a world breaks.
  static std::atomic<int> worlds{0};
  if (boot.rank() == 0 || !boot.in_process()) {
    if (const int nth = worlds.fetch_add(1) + 1; nth > 1) {
      path = trace::with_part(*path, std::to_string(nth));
    }
  }
  if (boot.rank() == 0) trace::make_way(*path);
  return std::make_unique<world_trace>(d, *path, static_cast<std::uint64_t>(capacity));
}

world_trace::world_trace(device_ref d, std::string path, std::uint64_t capacity)
    : device_(d), path_(std::move(path)), events_(d, capacity) {}

trace::recorder::events world_trace::take(crosswarp::proxy* p) {
  finished_ = true;
  trace::recorder::events all;
  if (p == nullptr) return events_.take();
  p->hold([&] { all = events_.take(); });
  return all;
}

void world_trace::finish(bootstrap& boot, crosswarp::proxy* p, nanoseconds timeout) {
  const std::int64_t offset = offset_to_rank_0(boot, timeout);
  trace::rank_events mine{boot.rank(), device_.name() + " on " + host_name(), take(p)};
  for (trace::trace_record& r : mine.events.all) {
    r.begin += static_cast<std::uint64_t>(offset);
    r.end += static_cast<std::uint64_t>(offset);
  }
  if (boot.rank() != 0) return boot.put(key_of(boot.rank()), pack(mine));
  std::vector<trace::rank_events> all;
  all.push_back(std::move(mine));
  for (int r = 1; r < boot.size(); ++r) all.push_back(unpack(r, boot.get(key_of(r), timeout)));
  write_or_log(path_, 0, all);
}

void world_trace::finish_alone(int rank, crosswarp::proxy* p) noexcept {
  if (finished_) return;
  try {
    const std::string path = trace::with_part(path_, "rank" + std::to_string(rank));
    write_or_log(path, rank, {{rank, device_.name() + " on " + host_name(), take(p)}});
    log::warn(rank, "the world is broken: its trace is in parts, this rank's in ", path);
  } catch (const std::exception& e) {
    log::error(rank, "trace: ", e.what());
  }
}

}  // namespace crosswarp::world_impl
