#include "rank_world.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "crosswarp/error.hpp"

namespace crosswarp::python {

rank_world::rank_world(const world_options& options)
    : own_(std::make_unique<world>(options)),
      world_(own_.get()),
      rank_(world_->rank()),
      size_(world_->size()),
      device_(options.device) {}

rank_world::rank_world(world& w)
    : world_(&w), rank_(w.rank()), size_(w.size()), device_(w.options().device) {}

rank_world::~rank_world() {
  end();
}

world& rank_world::alive(const char* call) const {
  if (world_ == nullptr) throw error(errc::invalid_argument, call, "the world has ended");
  return *world_;
}

std::shared_ptr<part> rank_world::add(std::shared_ptr<part> p) {
  parts_.emplace(next_++, p);
  return p;
}

std::shared_ptr<part> rank_world::allocate(std::size_t bytes) {
  return call("World.empty", [&](world& w) {
    give_back(w);
    auto p = std::make_shared<part>();
    p->what.emplace<symmetric_buffer<std::byte>>(w, bytes);
    return add(std::move(p));
  });
}

std::shared_ptr<part> rank_world::make_coll(const coll_options& options) {
  return call("Coll", [&](world& w) {
    give_back(w);
    auto p = std::make_shared<part>();
    p->what.emplace<coll>(w, options);
    return add(std::move(p));
  });
}

/// Ends what nobody wants any more on any rank, in the order of their numbers.
void rank_world::give_back(world& w) {
  std::vector<std::uint64_t> idle;
  for (const auto& [number, p] : parts_) {
    if (!p->wanted) idle.push_back(number);
  }
  auto everywhere = idle;
  for (const auto& bytes : w.allgather(std::as_bytes(std::span(idle)))) {
    std::vector<std::uint64_t> theirs(bytes.size() / sizeof(std::uint64_t));
    if (!theirs.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
    std::vector<std::uint64_t> both;
    std::set_intersection(everywhere.begin(), everywhere.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(both));
    everywhere = std::move(both);
  }
  for (const std::uint64_t number : everywhere) {
    parts_.at(number)->what.emplace<std::monostate>();
    parts_.erase(number);
  }
}

void rank_world::abort(const std::string& why) noexcept {
  const std::scoped_lock lock(life_);
  if (world_ != nullptr) world_->abort(why);
}

bool rank_world::ended() const {
  const std::scoped_lock lock(life_);
  return world_ == nullptr;
}

int rank_world::in_use() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(std::count_if(parts_.begin(), parts_.end(), [](const auto& p) {
    return p.second->wanted && std::holds_alternative<symmetric_buffer<std::byte>>(p.second->what);
  }));
}

void rank_world::end() noexcept {
  const std::scoped_lock lock(mutex_);
  if (world_ == nullptr) return;
  for (auto p = parts_.rbegin(); p != parts_.rend(); ++p) {
    p->second->what.emplace<std::monostate>();  // Python may refer to the part for longer
  }
  parts_.clear();
  {
    const std::scoped_lock gone(life_);
    world_ = nullptr;
  }
  own_.reset();  // waits for the other ranks
}

}  // namespace crosswarp::python
