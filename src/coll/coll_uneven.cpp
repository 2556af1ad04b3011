// Calls on streams whose parts are uneven.
#include "coll/state.hpp"

namespace crosswarp {

namespace {

/// A copy for the kernel's arguments. `size`: of an element.
coll_impl::uneven copied(const char* name, int ranks, coll::by_rank counts, coll::by_rank places,
                         std::size_t size) {
  if (ranks > coll_impl::most_uneven) {
    throw error(errc::not_supported, name,
                "on streams parts are of " + std::to_string(coll_impl::most_uneven) +
                    " ranks at most; kernels can make the call themselves for more");
  }
  const auto n = static_cast<std::size_t>(ranks);
  if (counts.size() != n || places.size() != n) {
    throw error(errc::invalid_argument, name,
                std::to_string(counts.size()) + " counts and " + std::to_string(places.size()) +
                    " places for " + std::to_string(ranks) + " ranks");
  }
  coll_impl::uneven all;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t most = coll_impl::most_bytes / size / n;
    if (counts[r] > most || places[r] > most) {
      throw error(errc::invalid_argument, name,
                  std::to_string(counts[r]) + " elements at " + std::to_string(places[r]) +
                      " for rank " + std::to_string(r) + " are more than memory can have");
    }
    all.counts[r] = counts[r];
    all.places[r] = places[r];
  }
  return all;
}

std::size_t longest_of(coll::by_rank counts) {
  return *std::max_element(counts.begin(), counts.end());
}
std::size_t of_rank(coll::by_rank counts, int rank) {
  return counts[static_cast<std::size_t>(rank)];
}

}  // namespace

void coll::reduce_scatter_v(void* out, const void* in, by_rank counts, by_rank places,
                            data_type type, coll_op op, stream* on) {
  const auto parts = copied("reduce_scatter_v", size(), counts, places, size_of(type));
  state::need("reduce_scatter_v", "in", in, longest_of(counts));
  state::need("reduce_scatter_v", "out", out, of_rank(counts, rank()));
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  call c = state_->make(out, in, all);
  c.op = op;
  c.parts = &parts;
  const std::size_t bytes = all * size_of(type);
  state_->reduce(coll_impl::collective::reduce_scatter_v, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::all_gather_v(void* out, const void* in, by_rank counts, by_rank places, stream* on) {
  const auto parts = copied("all_gather_v", size(), counts, places, 1);
  state::need("all_gather_v", "in", in, of_rank(counts, rank()));
  state::need("all_gather_v", "out", out, longest_of(counts));
  call c = state_->make(out, in, longest_of(counts));
  c.parts = &parts;
  state_->move_uneven(coll_impl::collective::all_gather_v, c, on);
}

void coll::gather_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                    stream* on) {
  state_->check_root("gather_v", root);
  const auto parts = copied("gather_v", size(), counts, places, 1);
  state::need("gather_v", "in", in, of_rank(counts, rank()));
  if (rank() == root) state::need("gather_v", "out", out, longest_of(counts));
  call c = state_->make(out, in, longest_of(counts));
  c.root = root;
  c.parts = &parts;
  state_->move_uneven(coll_impl::collective::gather_v, c, on);
}

void coll::scatter_v(void* out, const void* in, by_rank counts, by_rank places, int root,
                     stream* on) {
  state_->check_root("scatter_v", root);
  const auto parts = copied("scatter_v", size(), counts, places, 1);
  if (rank() == root) state::need("scatter_v", "in", in, longest_of(counts));
  state::need("scatter_v", "out", out, of_rank(counts, rank()));
  call c = state_->make(out, in, longest_of(counts));
  c.root = root;
  c.parts = &parts;
  state_->move_uneven(coll_impl::collective::scatter_v, c, on);
}

/// Nobody knows how much the others send, and all have to take as many blocks: those of a long
/// call.
void coll::all_to_all_v(void* out, const void* in, const all_to_all_plan& plan, stream* on) {
  const auto sent = copied("all_to_all_v", size(), plan.send_counts, plan.send_places, 1);
  const auto received = copied("all_to_all_v", size(), plan.receive_counts, plan.receive_places, 1);
  state::need("all_to_all_v", "in", in, longest_of(plan.send_counts));
  state::need("all_to_all_v", "out", out, longest_of(plan.receive_counts));
  call c = state_->make(out, in, 0);
  c.what = coll_impl::collective::all_to_all_v;
  c.parts = &received;
  const launch_shape shape{.blocks = state_->rules.blocks, .threads = state_->rules.threads};
  coll_impl::queue_all_to_all_v(state_->on(on), shape, sent, c);
}

}  // namespace crosswarp
