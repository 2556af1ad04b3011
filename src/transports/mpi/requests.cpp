// The engine of MPI: requests under way, what others ask of this rank, and who is told of an end.
#include "engine_mpi.hpp"
#include "transports/local/atomic_kernel.hpp"

namespace crosswarp::mpi {

pending& engine_mpi::take(completion& c, int pe) {
  if (free_words_.empty()) {
    free_words_.push_back(&words_->pending.emplace_back());
    free_words_.back()->tag = static_cast<int>(words_->pending.size());
  }
  pending& op = *free_words_.back();
  free_words_.pop_back();
  op = {.tag = op.tag, .c = &c, .pe = pe, .open = 1};
  return op;
}

bool engine_mpi::serve() {
  for (int served = 0; served < served_at_once; ++served) {
    int there = 0;
    MPI_Status from = {};
    if (MPI_Iprobe(MPI_ANY_SOURCE, request_tag, hosts_, &there, &from) != MPI_SUCCESS ||
        there == 0) {
      return served != 0;
    }
    pending& op = take(nobody_, from.MPI_SOURCE);
    if (MPI_Recv(&op.asked, sizeof(op.asked), MPI_BYTE, from.MPI_SOURCE, request_tag, hosts_,
                 MPI_STATUS_IGNORE) == MPI_SUCCESS &&
        !peers_[static_cast<std::size_t>(op.pe)].lost) {
      op.answer = answer_to(op.asked);
      // Where it fails the rank is lost, and learns it otherwise.
      (void)watch(op, [&](MPI_Request* r) {
        return MPI_Isend(&op.answer, sizeof(op.answer), MPI_BYTE, op.pe, op.asked.answer_tag,
                         hosts_, r);
      });
    }
    one_done(op);
  }
  return true;
}

atomic_answer engine_mpi::answer_to(const atomic_request& asked) const {
  const auto& [offset, operand, comparand, id, what, width, tag] = asked;
  const bool known = id < regions_.size() && regions_[id].window != MPI_WIN_NULL &&
                     (width == 4 || width == 8) && offset % width == 0 &&
                     offset < regions_[id].bytes && width <= regions_[id].bytes - offset;
  if (!known) return {0, status::invalid};
  return {local::update({what, width, regions_[id].base + offset, operand, comparand, nullptr}),
          status::ok};
}

void engine_mpi::test_requests() {
  const auto n = static_cast<int>(requests_.size());
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int ended = 0;
  const int code = MPI_Testsome(n, requests_.data(), &ended, indices_.data(), statuses_.data());
  if (ended == MPI_UNDEFINED || ended == 0) return;
  for (int i = 0; i < ended; ++i) {
    const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    pending& op = *std::exchange(owners_[at], nullptr);
    if (code == MPI_ERR_IN_STATUS) {
      set_worse(op.outcome, outcome_of(statuses_[static_cast<std::size_t>(i)].MPI_ERROR));
    }
    if (op.abandoned) --abandoned_requests_;
    one_done(op);
  }
  std::erase(owners_, nullptr);
  std::erase(requests_, MPI_REQUEST_NULL);
}

void engine_mpi::one_done(pending& op) {
  if (--op.open == 0) ended_.push_back(&op);
}

void engine_mpi::atomic_over(const pending& op) {
  if (op.serial == 0) return;
  --peers_[static_cast<std::size_t>(op.pe)].atomics;
  std::erase(atomics_, op.serial);
}

bool engine_mpi::tell() {
  bool told = false;
  // Who is told may start the next operation.
  while (!ended_.empty()) {
    pending& op = *ended_.back();
    ended_.pop_back();
    completion* const c = op.abandoned || ending_ ? nullptr : op.c;
    if (!op.abandoned) atomic_over(op);
    if (op.serial != 0) set_worse(op.outcome, op.answer.outcome);
    const status s = op.outcome;
    if (c != nullptr && op.old != nullptr) *op.old = op.answer.before;
    free_words_.push_back(&op);
    if (c == nullptr) continue;
    c->done(*c, s);
    told = true;
  }
  return end_flushes() || told;
}

bool engine_mpi::end_flushes() {
  bool told = false;
  while (!flushes_.empty() &&
         (atomics_.empty() || atomics_.front() > flushes_.front().last_atomic)) {
    const held_flush f = flushes_.front();
    flushes_.pop_front();
    if (ending_) continue;
    f.c->done(*f.c, f.outcome);
    told = true;
  }
  return told;
}

void engine_mpi::abandon(pending& op) {
  if (std::exchange(op.abandoned, true)) return;
  atomic_over(op);
  op.c->done(*op.c, status::peer_lost);
}

}  // namespace crosswarp::mpi
