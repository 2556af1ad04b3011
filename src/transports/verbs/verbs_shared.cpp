#include "transports/verbs/verbs_shared.hpp"

#include <algorithm>

#include "crosswarp/error.hpp"

namespace crosswarp::verbs {

using mlx5::swapped;

device_receive::device_receive(std::uint64_t id, const receive_entry& e) noexcept {
  for (std::size_t i = 0; i < e.count; ++i) {
    pieces[i] = {e.pieces[i].address, e.pieces[i].bytes, e.pieces[i].key};
  }
  request.wr_id = id;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(e.count);
}

namespace {

ibv_srq_init_attr attributes_of(const verbs_context& c, const shared_setup& s) {
  if (c.limits().max_srq < 1 || static_cast<std::uint32_t>(c.limits().max_srq_wr) < s.depth) {
    throw error(errc::invalid_argument, "shared receive queue",
                "depth " + std::to_string(s.depth) + ": " + c.name() + " has " +
                    std::to_string(c.limits().max_srq < 1 ? 0 : c.limits().max_srq_wr) +
                    " at most");
  }
  if (c.limits().max_srq_sge < s.sge) {
    throw error(errc::invalid_argument, "shared receive queue",
                "sge " + std::to_string(s.sge) + ": " + c.name() + " has " +
                    std::to_string(c.limits().max_srq_sge) + " at most");
  }
  ibv_srq_init_attr a{};
  a.attr.max_wr = s.depth;
  a.attr.max_sge = std::min(static_cast<std::uint32_t>(c.limits().max_srq_sge), s.queue.pieces);
  return a;
}

}  // namespace

verbs_shared::verbs_shared(std::shared_ptr<verbs_context> c, const shared_setup& s)
    : context_(std::move(c)), setup_(s), queue_(nullptr, context_->library.destroy_srq) {
  ibv_srq_init_attr a = attributes_of(*context_, s);
  most_pieces_ = a.attr.max_sge;  // the device may raise it
  queue_ = own(context_->library.create_srq(context_->domain(), &a), context_->library.destroy_srq,
               "ibv_create_srq", context_->name());
}

bool verbs_shared::step() {
  const std::uint64_t posted = posted_until(*setup_.queue.record, forwarded_, setup_.depth);
  bool any = false;
  while (forwarded_ != posted) {
    device_receive r(place_, read_receive(setup_.queue.receive_at(place_), most_pieces_));
    ibv_recv_wr* bad = nullptr;
    // Full: kernels said that they posted more than it holds. Those wait here.
    if (ibv_post_srq_recv(queue_.get(), &r.request, &bad) != 0) return any;
    place_ = swapped(setup_.queue.link_at(place_).next) & (setup_.depth - 1);
    ++forwarded_;
    any = true;
  }
  return any;
}

}  // namespace crosswarp::verbs
