#include "crosswarp/coll.hpp"

#include "coll/state.hpp"
#include "world/state.hpp"

namespace crosswarp {

using coll_impl::most_bytes;

coll::coll(world& w, const coll_options& options) {
  const std::size_t least = coll_impl::least_shelf(w.size());
  if (options.channels < 1 || options.shelf_bytes < least) {
    throw error(
        errc::invalid_argument, "coll",
        "at least one channel with a shelf of " + std::to_string(least) + " bytes is needed");
  }
  // Of each channel's two, with room for all that lies beside them.
  if (options.shelf_bytes > most_bytes / 4 / static_cast<std::size_t>(options.channels)) {
    throw error(errc::invalid_argument, "coll",
                std::to_string(options.channels) + " channels with shelves of " +
                    std::to_string(options.shelf_bytes) + " bytes are more than memory can have");
  }
  for (int pe = 0; pe < w.size(); ++pe) {
    if (!w.is_mapped(pe) && !w.has_proxy()) {
      throw error(errc::not_supported, "coll",
                  "its memory is not mapped here, and there is no proxy", pe);
    }
  }
  coll_options rounded = options;
  rounded.shelf_bytes = coll_impl::round_up(options.shelf_bytes, device::line_bytes);
  state_ = std::make_unique<state>(w, rounded);
}
coll::~coll() {
  if (!state_) return;
  try {
    state_->of->stream().sync();  // kernels may be using the memory
    // What was put before a call failed may still be on its way to others, whose memory may be
    // given out again: that is a call of all ranks, and so behind this.
    if (state_->own.images) state_->of->state().finish_commands();
  } catch (const error&) {
    // Who wants to know has called check().
  }
}
coll::coll(coll&&) noexcept = default;

int coll::rank() const noexcept {
  return state_->of->rank();
}
int coll::size() const noexcept {
  return state_->of->size();
}
world& coll::of() const noexcept {
  return *state_->of;
}
device::coll coll::device() const noexcept {
  return device::coll(state_->own.view);
}

coll::choice coll::explain(const void* out, const void* in, std::size_t bytes) const {
  const state& s = *state_;
  const state::chosen how = s.choose(out, in, bytes);
  const std::size_t room = s.room_to_push(bytes);
  const auto up_to = [&](const char* words, std::size_t limit) {
    return words + std::to_string(limit) + " bytes (by " + s.tuning.source + ") ";
  };
  const auto why = [&]() -> std::string {
    switch (how.why) {
      case state::reason::asked:
        return "asked for in coll_options";
      case state::reason::push_unmapped:
        return "push was asked for in coll_options, but not all ranks are mapped";
      case state::reason::push_no_room:
        return "push was asked for in coll_options, but there is room for " + std::to_string(room) +
               " bytes";
      case state::reason::short_afar:
        return up_to("up to ", s.rules.pull_bytes) +
               "everything is sent to ranks that are not mapped";
      case state::reason::long_afar:
        return "long, and not all ranks are mapped";
      case state::reason::long_ring:
        return "long, and ranks are on " + std::to_string(s.runs.size() - 1) +
               " machines: each of them sends every element once";
      case state::reason::shortest:
        return up_to("up to ", s.rules.push_bytes) +
               "a meeting takes longer than sending everything to everybody";
      case state::reason::middle:
        return up_to("up to ", s.rules.pull_bytes) + std::to_string(size()) +
               " ranks read everything faster than they meet twice";
      case state::reason::long_one:
        break;
    }
    return up_to("above ", std::max(s.rules.push_bytes, s.rules.pull_bytes)) +
           (how.direct ? "two meetings cost less than what they save; both are symmetric or "
                         "registered memory: each element is read and written once"
                       : "two meetings cost less than what they save; through the communicator's "
                         "own memory, as the caller's is neither symmetric nor registered");
  };
  return {how.algorithm, how.blocks, how.direct, why()};
}

std::size_t coll::state::room_to_push(std::size_t bytes) const {
  return rules.push_per_block * static_cast<std::size_t>(blocks_for(bytes, rules.push_per_block));
}

coll::state::chosen coll::state::choose(const void* out, const void* in, std::size_t bytes) const {
  const int push_blocks = blocks_for(bytes, rules.push_per_block);
  const int long_blocks = blocks_for(bytes, rules.long_per_block);
  const std::size_t room = room_to_push(bytes);
  const coll_algorithm asked = options.algorithm;
  if (asked == coll_algorithm::push && (queued.images || bytes > room)) {
    return {coll_algorithm::pull, blocks_for(bytes), false,
            queued.images ? reason::push_unmapped : reason::push_no_room};
  }
  if (asked != coll_algorithm::automatic) {
    return {asked, asked == coll_algorithm::push ? push_blocks : blocks_for(bytes), false,
            reason::asked};
  }
  if (queued.images) {
    if (bytes <= rules.pull_bytes) {
      return {coll_algorithm::pull, blocks_for(bytes), false, reason::short_afar};
    }
    if (bytes <= two_shot_bytes()) {
      return {coll_algorithm::two_shot, long_blocks, false, reason::long_afar};
    }
    return {coll_algorithm::ring, long_blocks, false, reason::long_ring};
  }
  if (bytes <= std::min(rules.push_bytes, room)) {
    return {coll_algorithm::push, push_blocks, false, reason::shortest};
  }
  if (bytes <= rules.pull_bytes) {
    return {coll_algorithm::pull, blocks_for(bytes, rules.per_block / 2), false, reason::middle};
  }
  const bool direct = buffers.find(out, bytes) && buffers.find(in, bytes);
  return {coll_algorithm::two_shot, long_blocks, direct, reason::long_one};
}

void coll::all_reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                      stream* on) {
  state::need_both("all_reduce", out, in, count);
  const std::size_t bytes = state::bytes_of("all_reduce", count, size_of(type));
  const state::chosen how = state_->choose(out, in, bytes);
  call c = state_->make(out, in, count);
  c.op = op;
  c.how = how.algorithm;
  if (how.direct) {
    c.places = state_->share(c, out, in, bytes);
  } else if (how.algorithm == coll_algorithm::two_shot && !state_->queued.images &&
             state_->options.algorithm == coll_algorithm::automatic &&
             state_->on(on).is_recording()) {
    state_->note_recorded(c, bytes);
  }
  state_->reduce(coll_impl::collective::all_reduce, c, type,
                 state_->shape_for(bytes, how.blocks, how.algorithm == coll_algorithm::push), on);
}

void coll::reduce(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                  int root, stream* on) {
  state::need("reduce", "in", in, count);
  state_->check_root("reduce", root);
  if (rank() == root) state::need("reduce", "out", out, count);
  const std::size_t bytes = state::bytes_of("reduce", count, size_of(type));
  call c = state_->make(out, in, count);
  c.op = op;
  c.root = root;
  state_->reduce(coll_impl::collective::reduce, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::reduce_scatter(void* out, const void* in, std::size_t count, data_type type, coll_op op,
                          stream* on) {
  state::need_both("reduce_scatter", out, in, count);
  const std::size_t bytes = state_->bytes_of_all("reduce_scatter", count, size_of(type));
  call c = state_->make(out, in, count);
  c.op = op;
  state_->reduce(coll_impl::collective::reduce_scatter, c, type,
                 state_->shape_for(bytes, state_->blocks_for(bytes), false), on);
}

void coll::all_gather(void* out, const void* in, std::size_t bytes, stream* on) {
  state::need_both("all_gather", out, in, bytes);
  (void)state_->bytes_of_all("all_gather", bytes, 1);
  state_->move(coll_impl::collective::all_gather, state_->make(out, in, bytes), on);
}

void coll::broadcast(void* data, std::size_t bytes, int root, stream* on) {
  state::need("broadcast", "data", data, bytes);
  state_->check_root("broadcast", root);
  (void)state::bytes_of("broadcast", bytes, 1);
  call c = state_->make(data, data, bytes);
  c.root = root;
  state_->move(coll_impl::collective::broadcast, c, on);
}

void coll::gather(void* out, const void* in, std::size_t bytes, int root, stream* on) {
  state_->check_root("gather", root);
  state::need("gather", "in", in, bytes);
  if (rank() == root) state::need("gather", "out", out, bytes);
  (void)state_->bytes_of_all("gather", bytes, 1);
  call c = state_->make(out, in, bytes);
  c.root = root;
  state_->move(coll_impl::collective::gather, c, on);
}

void coll::scatter(void* out, const void* in, std::size_t bytes, int root, stream* on) {
  state_->check_root("scatter", root);
  state::need("scatter", "out", out, bytes);
  if (rank() == root) state::need("scatter", "in", in, bytes);
  (void)state_->bytes_of_all("scatter", bytes, 1);
  call c = state_->make(out, in, bytes);
  c.root = root;
  state_->move(coll_impl::collective::scatter, c, on);
}

void coll::all_to_all(void* out, const void* in, std::size_t bytes, stream* on) {
  state::need_both("all_to_all", out, in, bytes);
  (void)state_->bytes_of_all("all_to_all", bytes, 1);
  state_->move(coll_impl::collective::all_to_all, state_->make(out, in, bytes), on);
}

void coll::barrier(stream* on) {
  state_->move(coll_impl::collective::barrier, state_->make(nullptr, nullptr, 0), on);
}

// ---- memory of the caller

void coll::register_buffer(void* data, std::size_t bytes) {
  state_->buffers.add(data, bytes);
}
void coll::unregister_buffer(void* data) {
  state_->buffers.remove(data);
}
std::size_t coll::register_recorded() {
  return state_->buffers.register_recorded();
}
void coll::forget_recorded() {
  state_->buffers.forget_recorded();
}

void coll::check(stream* on) {
  stream& s = state_->on(on);
  const auto disagree = [&] {
    const coll_impl::outcome& o = *state_->outcome.data();
    if (o.worst != static_cast<std::int32_t>(status::invalid)) return;
    const int who = o.who >= 0 ? o.who : fault_rank(state_->queued.failed());
    throw error(errc::asymmetric, "coll", coll_impl::explain(o, who), who);
  };
  try {
    s.sync();
  } catch (const error& e) {
    // A mistake of this rank's says more than what came of it.
    if (e.code() != errc::invalid_argument) disagree();  // another rank has ended the world for it
    throw;
  }
  disagree();
  const auto outcome = static_cast<status>(state_->outcome.data()->worst);
  if (outcome == status::ok) return;
  state_->of->check();
  if (outcome == status::timeout) {
    throw error(errc::timeout, "coll", "not all ranks made the call");
  }
  throw error(errc::aborted, "coll", to_string(outcome));
}

}  // namespace crosswarp
