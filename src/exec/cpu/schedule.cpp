#include "crosswarp/schedule.hpp"

#include "crosswarp/error.hpp"
#include "executor.hpp"

namespace crosswarp {

schedule schedule::random(std::uint64_t seed, std::uint64_t count) {
  schedule s;
  s.seed_ = seed;
  s.limit_ = count;
  return s;
}

schedule schedule::exhaustive(int preemptions, std::uint64_t limit) {
  schedule s;
  s.exhaustive_ = true;
  s.preemptions_ = preemptions;
  s.limit_ = limit;
  return s;
}

bool schedule::available() noexcept {
  return exec::cpu::scheduling_available();
}

namespace {

std::uint64_t mix(std::uint64_t& state) noexcept {  // splitmix64
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

}  // namespace

bool schedule::next() {
  depth_ = 0;
  preempted_ = 0;
  if (executions_ >= limit_ && !exhaustive_) return false;
  if (!exhaustive_) {
    state_ = seed_ + executions_ * 0x632be59bd9b4e019ULL;
  } else if (executions_ > 0) {
    // Depth first: the last choice that has an alternative takes it, what follows starts anew.
    while (!path_.empty() && path_.back().taken + 1 >= path_.back().options) path_.pop_back();
    if (path_.empty()) {
      complete_ = true;
      return false;
    }
    if (executions_ >= limit_) return false;
    ++path_.back().taken;
  }
  ++executions_;
  return true;
}

std::size_t schedule::choose(std::size_t options, std::size_t preferred) {
  if (options == 1) return 0;
  const bool may_stay = preferred < options;
  if (!exhaustive_) {
    // Staying is as likely as any switch, so that long runs and quick changes both occur.
    if (may_stay && mix(state_) % 2 == 0) return preferred;
    return mix(state_) % options;
  }
  if (may_stay && preempted_ >= preemptions_) return preferred;
  if (depth_ == path_.size()) path_.push_back({0, options, preferred});
  const choice& c = path_[depth_++];
  if (c.options != options || c.preferred != preferred) {
    throw error(errc::invalid_argument, "schedule",
                "the kernel did not take the same steps again: something besides the schedule "
                "decides what it does");
  }
  // Alternative 0 is to stay, so that the first execution has no preemption at all.
  const std::size_t pick = !may_stay              ? c.taken
                           : c.taken == 0         ? preferred
                           : c.taken <= preferred ? c.taken - 1
                                                  : c.taken;
  if (may_stay && pick != preferred) ++preempted_;
  return pick;
}

std::string schedule::describe() const {
  if (!exhaustive_) {
    return "random seed " + std::to_string(seed_) + " walk " + std::to_string(executions_ - 1);
  }
  std::string text = "exhaustive #" + std::to_string(executions_) + " choices";
  for (const choice& c : path_) text += " " + std::to_string(c.taken);
  return text;
}

}  // namespace crosswarp
