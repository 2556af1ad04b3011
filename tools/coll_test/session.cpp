#include "coll_test/session.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

namespace crosswarp::tool::coll_test {
namespace {

/// What memory holds that nothing has come to.
constexpr auto poison = std::byte{0xa5};
constexpr int warm_ups = 5;

/// FNV-1a. Ranks that got the same bits have the same.
std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte b : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace

session::memory::memory(world& w, std::size_t bytes, bool symmetric) {
  if (symmetric) {
    shared_.emplace(w, bytes);
  } else {
    own_.emplace(w.options().device, bytes);
  }
}

std::byte* session::memory::data() const {
  return shared_ ? shared_->data() : own_->data();
}

session::session(world& w, const session_options& o)
    : w_(w),
      options_(o),
      all_(w, {.algorithm = o.algorithm}),
      in_(w, o.longest, o.symmetric),
      out_(w, o.longest, o.symmetric),
      source_(w.options().device, o.longest),
      result_(w.options().device, o.longest) {
  w.barrier();
}

bool session::has(const problem& p, bool in_place) const {
  if (p.op == operation::send_recv) return !in_place && p.ranks > 1;  // nobody sends to itself
  if (!in_place) return p.op != operation::broadcast;                 // it has one place
  // In place a rank's part begins elsewhere on each rank, which symmetric memory may not.
  if (p.op == operation::all_to_all) return false;
  return !options_.symmetric || !in_parts(p.op);
}

/// In place as in NCCL: a rank's part is where it belongs in the longer memory.
session::places session::places_of(const problem& p, bool in_place) const {
  if (!in_place) return {out_.data(), in_.data()};
  if (!in_parts(p.op)) return {in_.data(), in_.data()};
  const auto rank = static_cast<std::size_t>(w_.rank());
  const std::size_t mine = coll_test::places_of(p, w_.rank())[rank] * size_of(p.type);
  const bool in_is_longer = p.op == operation::reduce_scatter || p.op == operation::scatter;
  if (in_is_longer) return {in_.data() + mine, in_.data()};
  return {in_.data(), in_.data() + mine};
}

/// Counts and places are gone when this returns.
void session::queue_uneven(const problem& p, const places& at) {
  auto counts = counts_of(p, w_.rank());
  auto begins = coll_test::places_of(p, w_.rank());
  if (p.op == operation::reduce_scatter) {
    return all_.reduce_scatter_v(at.out, at.in, counts, begins, p.type, p.redop);
  }
  for (auto* all : {&counts, &begins}) {
    for (std::size_t& n : *all) n *= size_of(p.type);
  }
  switch (p.op) {
    case operation::all_gather:
      return all_.all_gather_v(at.out, at.in, counts, begins);
    case operation::gather:
      return all_.gather_v(at.out, at.in, counts, begins, p.root);
    case operation::scatter:
      return all_.scatter_v(at.out, at.in, counts, begins, p.root);
    default:
      return all_.all_to_all_v(at.out, at.in, {counts, begins, counts, begins});
  }
}

void session::queue(const problem& p, const places& at) {
  if (p.uneven) return queue_uneven(p, at);
  const std::size_t bytes = p.count * size_of(p.type);
  switch (p.op) {
    case operation::all_reduce:
      return all_.all_reduce(at.out, at.in, p.count, p.type, p.redop);
    case operation::reduce_scatter:
      return all_.reduce_scatter(at.out, at.in, p.count, p.type, p.redop);
    case operation::reduce:
      return all_.reduce(at.out, at.in, p.count, p.type, p.redop, p.root);
    case operation::all_gather:
      return all_.all_gather(at.out, at.in, bytes);
    case operation::broadcast:
      return all_.broadcast(at.in, bytes, p.root);
    case operation::all_to_all:
      return all_.all_to_all(at.out, at.in, bytes);
    case operation::gather:
      return all_.gather(at.out, at.in, bytes, p.root);
    case operation::scatter:
      return all_.scatter(at.out, at.in, bytes, p.root);
    case operation::send_recv: {
      using direction = coll::message::direction;
      const int next = (w_.rank() + 1) % p.ranks;
      const int before = (w_.rank() + p.ranks - 1) % p.ranks;
      return all_.exchange(std::array<coll::message, 2>{
          {{direction::send, at.in, bytes, next}, {direction::receive, at.out, bytes, before}}});
    }
  }
}

/// The input is overwritten as soon as the stream is past the call, while other ranks may still be
/// in it: who returns too early lets them read that.
std::size_t session::check(const problem& p, bool in_place) {
  const device_ref device = w_.options().device;
  const std::size_t in_bytes = elements_in(p, w_.rank()) * size_of(p.type);
  const std::size_t out_bytes = elements_out(p, w_.rank()) * size_of(p.type);
  const std::size_t longer = std::max(in_bytes, out_bytes);
  const places at = places_of(p, in_place);
  std::vector<std::byte> host = input_of(p, w_.rank());
  exec::copy_now(device, source_.data(), host.data(), in_bytes);
  host.assign(longer, poison);
  exec::copy_now(device, out_.data(), host.data(), longer);
  exec::copy_now(device, in_.data(), host.data(), longer);
  exec::copy_now(device, result_.data(), host.data(), longer);
  w_.barrier();

  stream& s = w_.stream();
  s.copy(at.in, source_.data(), in_bytes);
  queue(p, at);
  if (in_place) {
    s.copy(result_.data(), at.out, out_bytes);
    s.copy(in_.data(), out_.data(), longer);
  } else {
    s.copy(in_.data(), result_.data(), in_bytes);
    s.copy(result_.data(), at.out, out_bytes);
  }
  all_.check();
  w_.barrier();

  host.resize(out_bytes);
  exec::copy_now(device, host.data(), result_.data(), out_bytes);
  const std::size_t wrong = wrong_in(p, w_.rank(), host);
  if (p.op != operation::all_reduce) return wrong;
  // Also where any of several results is right, all ranks have the same.
  const auto prints = w_.allgather(fingerprint(host));
  return wrong + (prints[static_cast<std::size_t>(w_.rank())] != prints[0] ? 1 : 0);
}

double session::measure(const problem& p, bool in_place) {
  const places at = places_of(p, in_place);
  for (int i = 0; i < warm_ups; ++i) queue(p, at);
  all_.check();
  w_.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < options_.iterations; ++i) queue(p, at);
  all_.check();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  const auto all = w_.allgather(took.count() / options_.iterations);
  return std::accumulate(all.begin(), all.end(), 0.0) / w_.size();
}

outcome session::run(problem p, bool in_place) {
  std::size_t wrong = 0;
  for (const contents in : {contents::integers, contents::random}) {
    p.in = in;
    wrong += check(p, in_place);
  }
  outcome o;
  for (const std::size_t theirs : w_.allgather(wrong)) o.wrong += theirs;
  if (options_.iterations > 0) o.us = measure(p, in_place);
  return o;
}

}  // namespace crosswarp::tool::coll_test
