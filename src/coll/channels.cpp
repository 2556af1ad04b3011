#include "coll/channels.hpp"

#include <algorithm>

#include "crosswarp/world_launch.hpp"

namespace crosswarp::coll_impl {
namespace {

bool all_are_mapped(const world& w) {
  for (int pe = 0; pe < w.size(); ++pe) {
    if (!w.is_mapped(pe)) return false;
  }
  return true;
}

/// Of one piece of a message; there are two for each rank in each channel.
std::size_t mail_bytes_for(const world& w, int channels) {
  const std::size_t most = w.options().device.kind() == device_kind::cpu ? 1U << 20U : 8U << 20U;
  const std::size_t pieces = 2 * static_cast<std::size_t>(channels * w.size());
  return std::clamp<std::size_t>(most / pieces / device::line_bytes * device::line_bytes, 1024,
                                 64U << 10U);
}

}  // namespace

std::vector<int> runs_of(world& w) {
  std::vector<std::byte> mine(static_cast<std::size_t>(w.size()));
  for (int pe = 0; pe < w.size(); ++pe) {
    mine[static_cast<std::size_t>(pe)] = std::byte{w.is_mapped(pe)};
  }
  const auto all = w.allgather(mine);
  std::vector<int> firsts;
  for (std::size_t pe = 0; pe < all.size(); ++pe) {
    if (pe == 0 || all[pe] != all[pe - 1]) firsts.push_back(static_cast<int>(pe));
  }
  firsts.push_back(w.size());
  return firsts;
}

channel_sizes sizes_for(const world& w, channel_sizes wanted) {
  if (all_are_mapped(w)) return wanted;
  const std::size_t most = w.options().device.kind() == device_kind::cpu ? 4U << 20U : 16U << 20U;
  const std::size_t shelves =
      2 * static_cast<std::size_t>(wanted.channels) * static_cast<std::size_t>(w.size());
  const std::size_t room = most / shelves / device::line_bytes * device::line_bytes;
  return {wanted.channels, std::min(wanted.shelf, std::max(room, least_shelf(w.size()))), 0};
}

channel_set::channel_set(world& w, const channel_sizes& sizes, const buffer<int>& runs,
                         std::uint32_t first_epoch)
    : channel_bytes(device::coll::bytes_of_channel(w.size(), sizes.shelf, sizes.packets)),
      rank_bytes(static_cast<std::size_t>(sizes.channels) * channel_bytes),
      images(!all_are_mapped(w)),
      work(w, rank_bytes * (images ? static_cast<std::size_t>(w.size()) : 1)),
      mail(w, static_cast<std::size_t>(sizes.channels) *
                  device::coll::mail_of_channel(w.size(), mail_bytes_for(w, sizes.channels))),
      peers(w.options().device,
            std::span<const device::peer>(images ? peers_of(w) : std::vector<device::peer>(1))),
      rare(w.options().device, 1) {
  view.rank = w.rank();
  view.size = w.size();
  view.channels = sizes.channels;
  view.limits = w.device().limits;
  view.work = work.device();
  view.shelf_bytes = sizes.shelf;
  view.packets = sizes.packets;
  view.channel_bytes = channel_bytes;
  device::coll::rare_parts more;
  more.mail = mail.device();
  more.mail_bytes = mail_bytes_for(w, sizes.channels);
  const std::vector<int> firsts = runs.read();
  more.runs = runs.data();
  more.run_count = static_cast<int>(firsts.size()) - 1;
  while (firsts[static_cast<std::size_t>(more.run) + 1] <= w.rank()) ++more.run;
  more.proxy = w.device().proxy;
  rare.write(std::span(&more, 1));
  view.rare = rare.data();
  if (images) {
    device::peer_table table;
    table.all = peers.data();
    table.ranks = w.size();
    view.work = {table, w.rank(), work.device().remote().offset, work.size()};
    view.image_bytes = rank_bytes;
  }
  if (first_epoch == 0) return;
  for (std::size_t c = 0; c < static_cast<std::size_t>(sizes.channels); ++c) {
    work.write(std::as_bytes(std::span(&first_epoch, 1)),
               own_place() + c * channel_bytes + device::coll::epoch_offset(w.size()));
  }
}

std::size_t channel_set::own_place() const {
  return images ? static_cast<std::size_t>(view.rank) * rank_bytes : 0;
}

// All channels have the same.
fault_word channel_set::failed() const {
  std::uint32_t word = 0;
  exec::copy_now(peers.device(), &word, failed_word(), sizeof(word));
  return word;
}

std::byte* channel_set::failed_word() const {
  return work.data() + own_place() + device::coll::failed_offset(view.size);
}

std::vector<device::peer> channel_set::peers_of(const world& w) const {
  std::vector<device::peer> all;
  for (int pe = 0; pe < w.size(); ++pe) {
    const bool mapped = w.is_mapped(pe);
    std::byte* const base = world_impl::heap_base(w.state(), mapped ? pe : w.rank());
    all.push_back({base + static_cast<std::size_t>(pe) * rank_bytes,
                   mapped ? device::path::mapped : device::path::proxy});
  }
  return all;
}

}  // namespace crosswarp::coll_impl
