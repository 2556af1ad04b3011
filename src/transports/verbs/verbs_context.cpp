#include "transports/verbs/verbs_context.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "exec/backends.hpp"
#include "transports/verbs/patience.hpp"

namespace crosswarp::verbs {

using namespace std::chrono_literals;

// ---- devices and ports

verbs_context::verbs_context(const ibverbs& l, std::string name, ibv_context* opened)
    : library(l),
      name_(std::move(name)),
      context_(own(opened, l.close_device, "ibv_open_device", name_)),
      domain_(own(l.alloc_pd(context_.get()), l.dealloc_pd, "ibv_alloc_pd", name_)) {
  check(l.query_device(context_.get(), &limits_), "ibv_query_device", name_);
}

ibv_port_attr verbs_context::port(int number) const {
  ibv_port_attr p{};
  check(library.query_port(context(), static_cast<std::uint8_t>(number), &p), "ibv_query_port",
        name_);
  return p;
}

bool verbs_context::is_active(int port) const {
  return port >= 1 && port <= limits_.phys_port_cnt && this->port(port).state == IBV_PORT_ACTIVE;
}

ibv_gid verbs_context::gid(int port, int index) const {
  ibv_gid g{};
  check(library.query_gid(context(), static_cast<std::uint8_t>(port), index, &g), "ibv_query_gid",
        name_);
  return g;
}

namespace {

bool is_zero(const ibv_gid& g) noexcept {
  return std::all_of(std::begin(g.raw), std::end(g.raw), [](auto b) { return b == 0; });
}
/// ::ffff:a.b.c.d
bool is_ipv4(const ibv_gid& g) noexcept {
  constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(g.raw, prefix, sizeof(prefix)) == 0;
}

}  // namespace

int verbs_context::gid_index(int port, int wish) const {
  const int count = this->port(port).gid_tbl_len;
  const auto refuse = [&](const std::string& why) {
    throw error(errc::invalid_argument, "rdma endpoint",
                name_ + ", port " + std::to_string(port) + ": " + why);
  };
  if (wish >= count || (wish >= 0 && is_zero(gid(port, wish)))) {
    refuse("gid_index " + std::to_string(wish) +
           ": there is no such address; -1 chooses one, crosswarp info lists them");
  }
  if (wish >= 0) return wish;
  int best = -1;
  int best_rank = 0;
  for (int i = 0; i < count; ++i) {
    ibv_gid_entry e{};
    if (library.query_gid_ex == nullptr) {
      e.gid = gid(port, i);
    } else if (library.query_gid_ex(context(), static_cast<std::uint32_t>(port),
                                    static_cast<std::uint32_t>(i), &e, 0, sizeof(e)) != 0) {
      continue;  // an empty place
    }
    if (is_zero(e.gid)) continue;
    const int rank = e.gid_type != IBV_GID_TYPE_ROCE_V2 ? 1 : is_ipv4(e.gid) ? 3 : 2;
    if (rank > best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  if (best < 0) refuse("it has no address; give its network interface one (ip addr add)");
  return best;
}

std::vector<std::shared_ptr<verbs_context>> open_all(
    const ibverbs& library, const std::function<bool(ibv_device*)>& wanted,
    const std::function<ibv_context*(ibv_device*)>& open) {
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  std::vector<std::shared_ptr<verbs_context>> all;
  if (list == nullptr) {
    if (errno != ENOSYS) check(errno, "ibv_get_device_list");  // ENOSYS: the kernel has no RDMA
    return all;
  }
  for (int i = 0; i < count; ++i) {
    if (!wanted(list[i])) continue;
    try {
      all.push_back(std::make_shared<verbs_context>(library, library.get_device_name(list[i]),
                                                    open(list[i])));
    } catch (const error& e) {
      log::warn(-1, "rdma: a device is left out: ", e.what(), "; crosswarp doctor says more");
    }
  }
  library.free_device_list(list);
  return all;
}

// ---- memory

namespace {

int flags_of(access allowed) noexcept {
  int flags = 0;
  // Who lets others write lets itself: adapters want it so.
  if (allowed != access::none && allowed != access::remote_read) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (allows(allowed, access::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(allowed, access::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(allowed, access::remote_atomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return flags;
}

}  // namespace

owned<ibv_mr> verbs_context::register_memory(const memory_range& m, access allowed) const {
  if (m.base == nullptr) return register_everything(m, allowed);
  if (m.on_host) {
    return own(library.reg_mr(domain(), m.base, m.bytes, flags_of(allowed)), library.dereg_mr,
               "register_memory", name_ + "; ulimit -l says how much memory may be locked");
  }
  try {
    return register_dmabuf(m, allowed);
  } catch (const error& e) {
    if (e.code() != errc::not_supported) throw;
    // The older way: with a module of the kernel the device finds a GPU's memory by its address.
    ibv_mr* const mr = library.reg_mr(domain(), m.base, m.bytes, flags_of(allowed));
    if (mr != nullptr) return {mr, library.dereg_mr};
    throw error(errc::not_supported, "register_memory",
                std::string(e.what()) + "; nor does the kernel find it (modprobe nvidia_peermem)");
  }
}

/// On-demand paging: a key for whatever there is, now and later.
owned<ibv_mr> verbs_context::register_everything(const memory_range& m, access allowed) const {
  ibv_mr* const mr = m.on_host ? library.reg_mr(domain(), nullptr, m.bytes,
                                                flags_of(allowed) | IBV_ACCESS_ON_DEMAND)
                               : nullptr;
  if (mr != nullptr) return {mr, library.dereg_mr};
  throw error(errc::not_supported, "register_everything",
              name_ + " has no key of all memory" +
                  (m.on_host ? " (on-demand paging)" : " of a GPU") + "; register what is used");
}

owned<ibv_mr> verbs_context::register_dmabuf(const memory_range& m, access allowed) const {
  if (library.reg_dmabuf_mr == nullptr) {
    throw error(errc::not_supported, "register_memory",
                "this libibverbs knows no dma-buf; install rdma-core 34 or newer");
  }
  const exec::cuda::dmabuf b = exec::cuda::export_dmabuf(m.device, m.base, m.bytes);
  ibv_mr* const mr =
      library.reg_dmabuf_mr(domain(), b.offset, m.bytes, reinterpret_cast<std::uintptr_t>(m.base),
                            b.descriptor, flags_of(allowed));
  const int why = errno;
  close(b.descriptor);  // the device holds the memory itself
  if (mr == nullptr && why == EOPNOTSUPP) {
    throw error(errc::not_supported, "register_memory",
                name_ + " takes no memory of a GPU; use memory_kind::pinned");
  }
  errno = why;
  return own(mr, library.dereg_mr, "ibv_reg_dmabuf_mr", name_);
}

// ---- addresses

namespace {

constexpr std::uint32_t number_mask = 0xffffff;

}  // namespace

std::uint32_t random_number() {
  return std::random_device{}() & number_mask;
}

endpoint_address address_of(const verbs_context& c, std::uint32_t qpn,
                            const rdma::endpoint_options& o, std::uint32_t first_number) {
  const ibv_port_attr p = c.port(o.port);
  endpoint_address a;
  a.fabric = adapters_id;
  a.qpn = qpn;
  a.first_number = first_number;
  a.lid = p.lid;
  a.mtu = static_cast<std::uint8_t>(p.active_mtu);
  const ibv_gid g = c.gid(o.port, o.gid_index);
  std::copy(std::begin(g.raw), std::end(g.raw), a.gid.begin());
  return a;
}

transition to_init(const rdma::endpoint_options& o) {
  transition t;
  t.to.qp_state = IBV_QPS_INIT;
  t.to.port_num = static_cast<std::uint8_t>(o.port);
  t.to.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  t.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return t;
}

ibv_ah_attr path_to(const endpoint_address& peer, const rdma::endpoint_options& o) {
  ibv_ah_attr a{};
  a.port_num = static_cast<std::uint8_t>(o.port);
  a.dlid = peer.lid;
  a.is_global = 1;
  std::copy(peer.gid.begin(), peer.gid.end(), std::begin(a.grh.dgid.raw));
  a.grh.sgid_index = static_cast<std::uint8_t>(o.gid_index);
  a.grh.hop_limit = 64;
  return a;
}

void refuse_link(const std::string& name) {
  throw error(errc::not_supported, "set_link",
              name + " is no soft device; ip link set its network interface up or down");
}

transition to_receive(const verbs_context& c, const rdma::endpoint_options& o,
                      const endpoint_address& self, const endpoint_address& peer) {
  transition t;
  t.to.qp_state = IBV_QPS_RTR;
  t.to.path_mtu = static_cast<ibv_mtu>(std::min(self.mtu, peer.mtu));
  t.to.dest_qp_num = peer.qpn;
  t.to.rq_psn = peer.first_number;
  t.to.max_dest_rd_atomic = reads_at_once(c.limits().max_qp_rd_atom);
  t.to.min_rnr_timer = not_ready_code(receiver_patience(o).each);
  t.to.ah_attr = path_to(peer, o);
  t.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return t;
}

transition to_send(const verbs_context& c, const rdma::endpoint_options& o,
                   const endpoint_address& self) {
  const patience answers = answer_patience(o);
  transition t;
  t.to.qp_state = IBV_QPS_RTS;
  t.to.timeout = timeout_code(answers.each);
  t.to.retry_cnt = answers.count;
  t.to.rnr_retry = receiver_patience(o).count;
  t.to.sq_psn = self.first_number;
  t.to.max_rd_atomic = reads_at_once(c.limits().max_qp_init_rd_atom);
  t.mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
  return t;
}

}  // namespace crosswarp::verbs
