#include "agree.hpp"

#include "crosswarp/launch.hpp"

namespace crosswarp::shmem_impl {
namespace {

struct common_bits {
  CW_FN void operator()(const device::kernel_context& k, device::shmem team, std::uint64_t* votes,
                        std::uint64_t mine, status* out) const {
    votes[0] = mine;
    *out = team.reduce(k.thread(), device::shmem_op::bit_and{}, votes + 1, votes, 1);
  }
};

struct meet {
  CW_FN void operator()(const device::kernel_context& k, device::shmem team, status* out) const {
    *out = team.sync(k.thread());
  }
};

void check(world& w, const status* out, const char* call) {
  w.stream().sync();
  const status s = *out;
  if (s == status::ok) return;
  w.check();
  throw error(s == status::invalid ? errc::asymmetric : errc::timeout, call,
              s == status::invalid ? "another PE called something else" : to_string(s));
}

}  // namespace

std::uint64_t bits_in_common(world& w, const device::shmem& team, std::uint64_t* votes,
                             std::uint64_t mine, status* outcome) {
  launch(w.stream(), {}, common_bits{}, team, votes, mine, outcome);
  check(w, outcome, "team");
  std::uint64_t all = 0;
  exec::copy_now(w.options().device, &all, votes + 1, sizeof(all));
  return all;
}

void sync(world& w, const device::shmem& team, status* outcome) {
  launch(w.stream(), {}, meet{}, team, outcome);
  check(w, outcome, "team");
}

}  // namespace crosswarp::shmem_impl
