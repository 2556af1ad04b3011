#include "launch_gather.hpp"

#include <algorithm>

#include "socket.hpp"

namespace crosswarp::world_impl {

void launch_gather::check_equal(const meeting& m) {
  const launch_part& first = *m.parts.front();
  for (const launch_part* p : m.parts) {
    if (p->kind != first.kind || p->shape.blocks != first.shape.blocks ||
        p->shape.threads != first.shape.threads ||
        p->shape.shared_bytes != first.shape.shared_bytes) {
      throw error(errc::asymmetric, "launch",
                  "ranks that launch together need the same kernel and the same shape");
    }
  }
}

void launch_gather::throw_late(const meeting& m) const {
  const auto absent = std::find(m.parts.begin(), m.parts.end(), nullptr) - m.parts.begin();
  throw error(errc::timeout, "launch", "did not come to launch with the others",
              ranks_[static_cast<std::size_t>(absent)]);
}

void launch_gather::meet(int rank, std::uint64_t number, const launch_part& mine, bootstrap& boot,
                         nanoseconds timeout,
                         const std::function<void(std::span<const launch_part>)>& start) {
  const auto slot = static_cast<std::size_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) -
                                             ranks_.begin());
  std::unique_lock lock(mutex_);
  auto& entry = meetings_[number];
  if (!entry) {
    entry = std::make_shared<meeting>();
    entry->parts.resize(ranks_.size());
  }
  const std::shared_ptr<meeting> m = entry;
  m->parts[slot] = &mine;
  if (++m->arrived == ranks_.size()) {
    meetings_.erase(number);
    lock.unlock();
    std::exception_ptr failure;
    try {
      check_equal(*m);
      std::vector<launch_part> parts;
      for (const launch_part* p : m->parts) parts.push_back(*p);
      start(parts);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    m->failure = failure;
    m->over = true;
    changed_.notify_all();
  }
  const time_point deadline = after(timeout);
  while (!m->over) {
    // The world may break while we wait for a rank that will never come.
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    if (m->over || m->arrived == ranks_.size()) continue;
    try {
      boot.check("launch");
      if (std::chrono::steady_clock::now() >= deadline) throw_late(*m);
    } catch (...) {
      // Over for all who came: their parts are on their stacks, and this one is about to go.
      m->failure = std::current_exception();
      m->over = true;
      meetings_.erase(number);
      changed_.notify_all();
    }
  }
  if (m->failure != nullptr) std::rethrow_exception(m->failure);
}

}  // namespace crosswarp::world_impl
