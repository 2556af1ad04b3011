#include "world/rdma_path.hpp"

#include <algorithm>
#include <cstring>

#include "crosswarp/error.hpp"
#include "exec/backends.hpp"
#include "proxy/decode.hpp"

namespace crosswarp::world_impl {
namespace {

/// What a rank says of one thing to all others.
template <class T>
std::vector<T> exchange(const meeting& meet, std::span<const T> mine, std::size_t ranks) {
  const auto bytes = std::as_bytes(mine);
  const auto all = meet({bytes.begin(), bytes.end()});
  std::vector<T> values(mine.size() * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[r].size() != bytes.size()) {
      throw error(errc::asymmetric, "path rdma",
                  "has another number of queues; see CROSSWARP_QUEUES", static_cast<int>(r));
    }
    std::memcpy(values.data() + r * mine.size(), all[r].data(), bytes.size());
  }
  return values;
}

rdma::adapter first_adapter(bool machines) {
  rdma::soft_options o;
  o.machines = machines;
  return rdma::context(rdma::backend::soft, o).devices().at(0);
}

std::size_t count(int n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

rdma_path::rdma_path(const setup& s)
    : device_(s.device),
      size_(s.size),
      queues_(s.queues),
      meet_(s.meet),
      adapter_(first_adapter(s.machines).open(s.device)),
      name_(first_adapter(s.machines).name()),
      landings_(s.device, landings + 1),
      landing_region_(adapter_.register_memory(landings_.data(),
                                               landings_.size() * sizeof(device::rdma_landing),
                                               rdma::access::local_write)),
      everything_(adapter_.register_everything()),
      parts_(s.device, count(s.size) * device::rdma_path::most_regions),
      states_(s.device, count(s.size) * count(s.queues)),
      counts_(s.device, count(s.queues) * device::proxy_calls),
      ways_(s.device, states_.size()),
      view_(s.device, 1) {
  connect(s);
  device::rdma_path v;
  v.ways = ways_.data();
  v.parts = parts_.data();
  v.counts = counts_.data();
  v.landings = landings_.data();
  v.landing_count = landings;
  v.landing_key = landing_region_.device().lkey;
  v.any_key = everything_.device().lkey;
  v.ranks = size_;
  view_.write(std::span(&v, 1));
}

/// Endpoint (q, r) of this rank leads to rank r, and is connected to its (q, this rank).
void rdma_path::connect(const setup& s) {
  rdma::endpoint_options o;
  o.receive_depth = 4;  // nobody sends
  std::vector<rdma::endpoint_address> mine;
  std::vector<device::rdma_way> ways;
  // Without the fault word: an adapter ends every entry, also when a rank is lost, and those to
  // other ranks go on.
  const device::wait_limits limits{nullptr, s.limits.timeout_ns, s.limits.late, -1, s.limits.trace};
  for (std::size_t i = 0; i < states_.size(); ++i) {
    endpoints_.push_back(adapter_.make_endpoint(o));
    mine.push_back(endpoints_.back().address());
    ways.push_back({endpoints_.back().device(limits.for_peer(static_cast<int>(i) % size_)),
                    states_.data() + i});
  }
  ways_.write(ways);
  const auto all = exchange<rdma::endpoint_address>(meet_, mine, count(size_));
  for (std::size_t q = 0; q < count(queues_); ++q) {
    for (std::size_t r = 0; r < count(size_); ++r) {
      endpoints_[q * count(size_) + r].connect(
          all[r * mine.size() + q * count(size_) + count(s.rank)]);
    }
  }
  // Nobody posts before all are connected.
  meet_({});
}

device::proxy_memory rdma_path::memory() const noexcept {
  device::proxy_memory m;
  m.queues = static_cast<std::uint32_t>(queues_);
  m.rdma = view_.data();
  return m;
}

std::uint16_t rdma_path::add_region(std::byte* base, std::size_t bytes) {
  auto place =
      std::find_if(regions_.begin(), regions_.end(), [](const region& r) { return !r.used; });
  if (place == regions_.end()) {
    if (regions_.size() == device::rdma_path::most_regions) {
      throw error(errc::out_of_memory, "registration",
                  std::to_string(device::rdma_path::most_regions) + " of them are there already");
    }
    place = regions_.emplace(regions_.end());
  }
  place->used = true;
  device::rdma_part mine;
  if (bytes > 0) {
    place->memory = std::make_unique<rdma::memory_region>(
        adapter_.register_memory(base, bytes, rdma::access::all));
    mine = {place->memory->device().address, bytes, place->memory->device().rkey};
  }
  const auto id = static_cast<std::uint16_t>(place - regions_.begin());
  write_parts(id, exchange<device::rdma_part>(meet_, std::span(&mine, 1), count(size_)));
  return id;
}

void rdma_path::remove_region(std::uint16_t id) {
  write_parts(id, std::vector<device::rdma_part>(count(size_)));
  regions_[id] = {};
}

void rdma_path::write_parts(std::uint16_t id, const std::vector<device::rdma_part>& all) {
  exec::copy_now(device_, parts_.data() + std::size_t{id} * count(size_), all.data(),
                 all.size() * sizeof(device::rdma_part));
}

std::vector<operation_stats> rdma_path::stats() const {
  std::vector<operation_stats> all(device::proxy_calls);
  const auto seen = counts_.read();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].name = proxy_impl::name_of(static_cast<device::proxy_call>(i));
    all[i].by_rdma = true;
    for (std::size_t at = i; at < seen.size(); at += all.size()) {
      all[i].count += seen[at].calls;
      all[i].bytes += seen[at].bytes;
      all[i].failures += seen[at].failures;
    }
  }
  return all;
}

void rdma_path::reset_stats() {
  counts_.write(std::vector<device::rdma_counts>(counts_.size()));
}

void rdma_path::finish(stream& on) {
  // No kernel asked for these: they do not count, and what they were told is still to be told.
  const auto counted = counts_.read();
  const auto told = states_.read();
  launch_quiet(on, device::proxy(memory(), {}));
  on.backend().sync();
  counts_.write(counted);
  states_.write(told);
}

}  // namespace crosswarp::world_impl
