// Ranks as processes that somebody started, or as threads of this one.
#include <exception>
#include <thread>

#include "core/log.hpp"
#include "memory/self_test.hpp"
#include "state.hpp"

namespace crosswarp {

using world_impl::break_world;
using world_impl::reason_of;

namespace {

/// Who launches together: ranks of this process on the same GPU, or under the same schedule.
std::shared_ptr<world_impl::launch_gather> gather_of(int ranks, const world_options& o) {
  if (o.device.kind() == device_kind::cpu && o.device.scheduler() == nullptr) return nullptr;
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
  return std::make_shared<world_impl::launch_gather>(std::move(all));
}

/// The first thing thrown by a rank; what others throw afterwards only follows from it.
class first_failure {
 public:
  void note(std::exception_ptr e) {
    const std::scoped_lock lock(mutex_);
    if (!first_) first_ = std::move(e);
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

bool launched() {
  return world_impl::environment_has_job();
}

void run(int ranks, const world_options& options, const std::function<void(world&)>& rank_main) {
  if (!launched()) return run_local(ranks, options, rank_main);
  world w(options);
  try {
    rank_main(w);
  } catch (...) {
    break_world(*w.state().boot, reason_of(std::current_exception()));
    throw;
  }
  w.stream().sync();
  w.barrier();
}

void run_local(int ranks, const world_options& options,
               const std::function<void(world&)>& rank_main) {
  if (ranks < 1 || ranks > 4096) {
    throw error(errc::invalid_argument, "run_local",
                std::to_string(ranks) + " ranks: from 1 to 4096");
  }
  auto boots = world_impl::make_local_bootstraps(ranks);
  const auto together = gather_of(ranks, options);
  first_failure failure;
  // Worlds end after all threads have: a rank's memory stays while another may look at it.
  std::vector<std::unique_ptr<world>> worlds(static_cast<std::size_t>(ranks));
  const auto run_rank = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    const std::shared_ptr<world_impl::bootstrap> boot = boots[i];
    try {
      world_options mine = options;
      if (mine.device.kind() == device_kind::cuda && cuda_device_count() == 0) {
        throw error(errc::not_supported, "run_local", cuda_absence_reason());
      }
      worlds[i].reset(new world(std::make_unique<world_impl::state>(mine, boot, together)));
      if (mine.self_test) memory::self_test(*worlds[i], worlds[i]->state_->test_lines);
      worlds[i]->barrier();
      rank_main(*worlds[i]);
      worlds[i]->stream().sync();
      worlds[i]->state_->finish_commands();
      worlds[i]->state_->finish_trace();
      worlds[i]->barrier();
    } catch (...) {
      const auto e = std::current_exception();
      failure.note(e);
      // Told here, too: what is thrown in the end does not say whose it was.
      if (break_world(*boot, reason_of(e))) log::error(r, "world: aborted: ", reason_of(e));
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run_rank, r);
  for (std::thread& t : threads) t.join();
  failure.rethrow();
}

}  // namespace crosswarp
