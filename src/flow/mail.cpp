#include "flow/mail.hpp"

#include "crosswarp/error.hpp"
#include "flow/world_kernels.hpp"

namespace crosswarp::flow::impl {
namespace {

namespace df = device::flow;

constexpr std::size_t link_bytes = df::link::memory_bytes(sizeof(message), mail_bag::most);

/// Each rank has a sending end for every rank, then a receiving end for every rank.
constexpr std::size_t sending_end(int to) {
  return static_cast<std::size_t>(to) * link_bytes;
}
constexpr std::size_t receiving_end(int from, int ranks) {
  return static_cast<std::size_t>(ranks + from) * link_bytes;
}

struct ends {
  std::size_t mine;
  std::size_t theirs;
};

df::link link_to(const world& w, const symmetric_buffer<std::byte>& memory, int peer,
                 const ends& at) {
  const auto end = [&](int rank, std::size_t offset) -> df::link_memory* {
    std::byte* const base = memory.data(rank);
    return base == nullptr ? nullptr : reinterpret_cast<df::link_memory*>(base + offset);
  };
  const auto symmetric = memory.device();
  df::link l;
  l.mine = end(w.rank(), at.mine);
  l.theirs = end(peer, at.theirs);
  l.packet_bytes = sizeof(message);
  l.buffers = mail_bag::most;
  l.reach = symmetric.reach();
  l.limits = w.device().limits.for_peer(peer);
  l.peer = peer;
  l.memory = symmetric.remote(at.theirs);
  l.proxy = w.device().proxy;
  return l;
}

std::vector<df::link> links_out(const world& w, const symmetric_buffer<std::byte>& memory) {
  std::vector<df::link> all;
  for (int r = 0; r < w.size(); ++r) {
    all.push_back(link_to(w, memory, r, {sending_end(r), receiving_end(w.rank(), w.size())}));
    all.back().sends = r != w.rank();
  }
  return all;
}

std::vector<df::link> links_in(const world& w, const symmetric_buffer<std::byte>& memory) {
  std::vector<df::link> all;
  for (int r = 0; r < w.size(); ++r) {
    all.push_back(link_to(w, memory, r, {receiving_end(r, w.size()), sending_end(w.rank())}));
    all.back().receives = r != w.rank();
  }
  return all;
}

}  // namespace

mail::mail(world& w)
    : rank_(w.rank()),
      ranks_(w.size()),
      proxy_(w.device().proxy),
      by_(w.options().device),
      memory_(w, receiving_end(w.size(), w.size())),
      out_(w.options().device, links_out(w, memory_), memory_kind::pinned),
      in_(w.options().device, links_in(w, memory_), memory_kind::pinned),
      going_(w.options().device, static_cast<std::size_t>(w.size()), memory_kind::pinned),
      coming_(w.options().device, static_cast<std::size_t>(w.size()), memory_kind::pinned),
      flushed_(w.options().device, 1, memory_kind::pinned) {}

bool mail::step(std::vector<std::deque<message>>& to, std::deque<message>& came) {
  if (ranks_ == 1) return false;
  const auto most = static_cast<std::size_t>(mail_bag::most);
  for (std::size_t r = 0; r < to.size(); ++r) {
    mail_bag& bag = going_.data()[r];
    bag.count = static_cast<std::int32_t>(std::min(most, to[r].size()));
    std::copy_n(to[r].begin(), bag.count, bag.letters);
  }
  carry_mail_once(by_, {out_.data(), in_.data(), going_.data(), coming_.data(), ranks_, rank_});
  bool moved = false;
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    auto& letters = to[static_cast<std::size_t>(r)];
    const mail_bag& taken = going_.data()[r];
    letters.erase(letters.begin(), letters.begin() + taken.taken);
    const mail_bag& got = coming_.data()[r];
    came.insert(came.end(), got.letters, got.letters + got.count);
    moved = moved || taken.taken > 0 || got.count > 0;
  }
  return moved;
}

void mail::flush() {
  if (ranks_ == 1 || proxy_.queues() == 0) return;
  queue_quiet(by_, proxy_, 0, flushed_.data());
  by_.sync();
  if (const status s = *flushed_.data(); s != status::ok) {
    throw error(errc::peer_lost, "flow::context",
                std::string("letters to other ranks did not arrive: ") + to_string(s));
  }
}

}  // namespace crosswarp::flow::impl
