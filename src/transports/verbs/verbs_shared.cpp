#include "transports/verbs/verbs_shared.hpp"

#include <cstring>

#include "crosswarp/error.hpp"

namespace crosswarp::verbs {

using mlx5::swapped;

namespace {

ibv_srq_init_attr attributes_of(const verbs_context& c, const shared_setup& s) {
  if (c.limits().max_srq < 1 || static_cast<std::uint32_t>(c.limits().max_srq_wr) < s.depth) {
    throw error(errc::invalid_argument, "shared receive queue",
                "depth " + std::to_string(s.depth) + ": " + c.name() + " has " +
                    std::to_string(c.limits().max_srq < 1 ? 0 : c.limits().max_srq_wr) +
                    " at most");
  }
  ibv_srq_init_attr a{};
  a.attr.max_wr = s.depth;
  a.attr.max_sge = 1;
  return a;
}

}  // namespace

verbs_shared::verbs_shared(std::shared_ptr<verbs_context> c, const shared_setup& s)
    : context_(std::move(c)), setup_(s), queue_(nullptr, context_->library.destroy_srq) {
  ibv_srq_init_attr a = attributes_of(*context_, s);
  queue_ = own(context_->library.create_srq(context_->domain(), &a), context_->library.destroy_srq,
               "ibv_create_srq", context_->name());
}

bool verbs_shared::step() {
  const std::uint64_t posted = posted_until(*setup_.queue.record, forwarded_, setup_.depth);
  bool any = false;
  while (forwarded_ != posted) {
    mlx5::shared_receive entry{};
    std::memcpy(&entry, setup_.queue.entries + place_, sizeof(entry));
    ibv_sge to{swapped(entry.data.addr), swapped(entry.data.byte_count), swapped(entry.data.lkey)};
    ibv_recv_wr r{};
    r.wr_id = place_;
    r.sg_list = &to;
    r.num_sge = to.length == 0 ? 0 : 1;
    ibv_recv_wr* bad = nullptr;
    // Full: kernels said that they posted more than it holds. Those wait here.
    if (ibv_post_srq_recv(queue_.get(), &r, &bad) != 0) return any;
    place_ = swapped(entry.link.next) & (setup_.depth - 1);
    ++forwarded_;
    any = true;
  }
  return any;
}

}  // namespace crosswarp::verbs
