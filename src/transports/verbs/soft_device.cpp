// The soft NIC as a backend: its devices, and the wires between them.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <random>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "transports/verbs/carrier.hpp"
#include "transports/verbs/far_wire.hpp"
#include "transports/verbs/soft_nic.hpp"

namespace crosswarp::verbs {
namespace {

using nic_list = std::vector<std::unique_ptr<soft_nic>>;

/// Between NICs of one process. On one and the same, a request is answered at once, in place; a
/// hostile one's answers are late there, too, so that who needs a fence misses it.
class local_wire final : public wire {
 public:
  local_wire(soft_nic& self, std::uint32_t number, const nic_list& all, const rdma::soft_options& o)
      : self_(self),
        number_(number),
        all_(all),
        most_late_(o.delay),
        is_late_(o.shuffle || o.delay.count() > 0),
        random_(o.seed + number) {}

  [[nodiscard]] std::uint32_t most_bytes(const station& /*to*/) const noexcept override {
    return ~std::uint32_t{0};
  }

  bool send(const request& r) override {
    if (r.to.device == number_) {
      if (is_late_) {
        answer_late(r);
      } else {
        self_.deliver(self_.respond(r));
      }
      return true;
    }
    if (r.to.device >= all_.size()) {
      self_.deliver({.to = r.from, .psn = r.psn});
      return true;
    }
    soft_nic& there = *all_[r.to.device];
    const auto load = std::make_shared<const parcel>(r.payload);
    if (!load->was_read()) {
      self_.deliver({.to = r.from,
                     .psn = r.psn,
                     .what = answer::kind::refused,
                     .why = mlx5::syndrome::local_protection});
      return true;
    }
    there.post([here = &self_, &there, r = request(r), load]() mutable {
      r.payload = load->pieces();
      here->post([here, l = pack(there.respond(r))] { hand_over(*here, l); });
    });
    return true;
  }

  bool progress() override {
    bool any = false;
    for (; !late_.empty() && late_.front().due <= clock::now(); any = true) {
      const letter next = std::move(late_.front());
      late_.pop_front();  // before: what is delivered may add others
      hand_over(self_, next);
    }
    return any;
  }
  bool arm() override { return late_.empty(); }

 private:
  using clock = std::chrono::steady_clock;

  /// Data on its way: neither end's memory.
  class parcel {
   public:
    explicit parcel(std::span<const piece> from) {
      std::size_t bytes = 0;
      for (const piece& p : from) bytes += p.bytes;
      data_.resize(bytes);
      held_ = own_piece(data_.data(), bytes);
      read_ = copy_pieces(std::span(&held_, 1), from);
    }
    [[nodiscard]] std::span<const piece> pieces() const noexcept { return {&held_, 1}; }
    /// False when the memory that it was to come from could not be reached.
    [[nodiscard]] bool was_read() const noexcept { return read_; }

   private:
    std::vector<std::byte> data_;
    piece held_;
    bool read_ = false;
  };

  /// An answer that is not delivered yet, and what it points to.
  struct letter {
    answer what;
    std::shared_ptr<const parcel> load;
    clock::time_point due{};
  };

  static letter pack(answer a) {
    auto load = std::make_shared<const parcel>(a.payload);
    if (!load->was_read()) {
      a.what = answer::kind::refused;
      a.why = mlx5::syndrome::remote_operation;
    }
    a.payload = {};
    return {a, std::move(load), {}};
  }
  static void hand_over(soft_nic& to, const letter& l) {
    answer a = l.what;
    a.payload = l.load->pieces();
    to.deliver(a);
  }

  /// In the order of requests, as from everywhere.
  void answer_late(const request& r) {
    letter l = pack(self_.respond(r));
    const auto most = static_cast<std::uint64_t>(most_late_.count());
    l.due = clock::now() + std::chrono::nanoseconds(most == 0 ? 0 : random_() % most);
    if (!late_.empty()) l.due = std::max(l.due, late_.back().due);
    late_.push_back(std::move(l));
  }

  soft_nic& self_;
  std::uint32_t number_;
  const nic_list& all_;
  const std::chrono::nanoseconds most_late_;
  const bool is_late_;
  std::mt19937_64 random_;
  std::deque<letter> late_;
};

class soft_registered final : public registered {
 public:
  soft_registered(soft_nic& n, const memory_range& m, access allowed)
      : nic_(n), key_(nic_.add_memory(m, allowed)) {}
  ~soft_registered() override { nic_.remove_memory(key_); }
  soft_registered(const soft_registered&) = delete;
  soft_registered& operator=(const soft_registered&) = delete;
  [[nodiscard]] std::uint32_t lkey() const noexcept override { return key_; }
  [[nodiscard]] std::uint32_t rkey() const noexcept override { return key_; }

 private:
  soft_nic& nic_;
  std::uint32_t key_;
};

/// What a NIC has to reach others with.
struct network {
  /// Not even a NIC of this process is reached in place.
  bool always = false;
  carrier* by = nullptr;  ///< null: none

  [[nodiscard]] std::string why_not(const endpoint_address& peer, std::uint64_t fabric) const {
    if (peer.fabric == fabric && !always) return {};
    if (by == nullptr) return "no socket could be made, see the log";
    if (peer.route_bytes > peer.route.size()) return "it is no address";
    return by->why_not(std::span(peer.route).first(peer.route_bytes));
  }
};

class soft_shared final : public shared_receives {
 public:
  soft_shared(soft_nic& n, const shared_setup& s) : nic_(n), number_(nic_.add_shared(s)) {}
  ~soft_shared() override { nic_.remove_shared(number_); }
  soft_shared(const soft_shared&) = delete;
  soft_shared& operator=(const soft_shared&) = delete;
  /// 0 when there are none.
  static std::uint32_t number_of(const shared_receives* s) noexcept {
    return s == nullptr ? 0 : static_cast<const soft_shared*>(s)->number_;
  }

 private:
  soft_nic& nic_;
  std::uint32_t number_;
};

class soft_queue_pair final : public queue_pair {
 public:
  soft_queue_pair(soft_nic& n, const network& net, const endpoint_address& where, const qp_setup& s)
      : nic_(n), net_(net), where_(where), made_(nic_.add_qp(s, soft_shared::number_of(s.shared))) {
    where_.qpn = made_.qpn;
  }
  ~soft_queue_pair() override { nic_.remove_qp(made_.qpn); }
  soft_queue_pair(const soft_queue_pair&) = delete;
  soft_queue_pair& operator=(const soft_queue_pair&) = delete;
  [[nodiscard]] std::uint32_t qpn() const noexcept override { return made_.qpn; }
  [[nodiscard]] std::uint64_t* doorbell() const noexcept override { return made_.doorbell; }
  [[nodiscard]] nic_call* nic() const noexcept override { return made_.call; }
  [[nodiscard]] endpoint_address address() const noexcept override { return where_; }
  void connect(const endpoint_address& peer) override {
    if (peer.qpn == 0) {
      throw error(errc::invalid_argument, "connect", "the address is of no endpoint");
    }
    if (const std::string why = net_.why_not(peer, where_.fabric); !why.empty()) {
      throw error(errc::not_supported, "connect", "nothing leads to that endpoint: " + why);
    }
    nic_.connect(made_.qpn, peer);
  }
  [[nodiscard]] endpoint_state state() override { return nic_.state_of(made_.qpn); }

 private:
  soft_nic& nic_;
  const network& net_;
  endpoint_address where_;
  soft_nic::made_qp made_;
};

class soft_adapter final : public adapter {
 public:
  soft_adapter(soft_nic& n, const network& net, std::uint64_t fabric, std::uint32_t number)
      : nic_(n), net_(net), name_("soft" + std::to_string(number)) {
    where_.fabric = fabric;
    where_.device = number;
    if (net.by == nullptr) return;
    const auto& route = net.by->route();
    std::copy(route.begin(), route.end(), where_.route.begin());
    where_.route_bytes = static_cast<std::uint32_t>(route.size());
  }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] int ports() const noexcept override { return 1; }
  [[nodiscard]] bool is_active(int port) override { return port == 1 && nic_.has_link(); }
  std::unique_ptr<registered> register_memory(const memory_range& m, access allowed) override {
    return std::make_unique<soft_registered>(nic_, m, allowed);
  }
  std::unique_ptr<queue_pair> make_queue_pair(const qp_setup& s) override {
    return std::make_unique<soft_queue_pair>(nic_, net_, where_, s);
  }
  std::unique_ptr<shared_receives> make_shared_receives(const shared_setup& s) override {
    return std::make_unique<soft_shared>(nic_, s);
  }
  void set_link(bool up) override { nic_.set_link(up); }

 private:
  soft_nic& nic_;
  const network& net_;
  endpoint_address where_;
  std::string name_;
};

// ---- how to reach other processes

enum class reach { sockets, ucx };
struct reach_choice {
  reach how = reach::sockets;
  bool always = false;
};

reach_choice choose_reach(const rdma::soft_options& o) {
  const std::string wanted = options::read("CROSSWARP_RDMA_WIRE").value_or("auto");
  if (wanted == "socket") return {reach::sockets, true};
  if (wanted == "ucx") return {reach::ucx, true};
  if (wanted != "auto") {
    throw error(errc::invalid_argument, "CROSSWARP_RDMA_WIRE",
                "'" + wanted + "' is none of auto, socket, ucx");
  }
  // `crosswarp run --nodes` pretends several machines.
  const bool machines = options::read_integer("CROSSWARP_NODES").value_or(1) > 1;
  return {o.machines || machines ? reach::ucx : reach::sockets, false};
}

std::unique_ptr<carrier> make_ucx_carrier() {
  const loaded_module m = load_module("ucx", "crosswarp_carrier");
  if (m.exported == nullptr) {
    throw error(errc::not_supported, "rdma between machines",
                m.where_or_why + "; build Crosswarp with UCX, or set CROSSWARP_ENGINE_PATH");
  }
  auto made = static_cast<const carrier_module*>(m.exported)->make();
  constexpr std::size_t room = sizeof(endpoint_address::route);
  if (made->route().size() > room) {
    throw error(errc::not_supported, "rdma between machines",
                "UCX has an address of " + std::to_string(made->route().size()) + " bytes, not " +
                    std::to_string(room) +
                    ": name the network to be used, e.g. "
                    "CROSSWARP_UCX_NET_DEVICES=eth0");
  }
  return made;
}

std::unique_ptr<carrier> make_carrier(const reach_choice& c) {
  if (c.how == reach::ucx) return make_ucx_carrier();
  try {
    return make_socket_carrier();
  } catch (const error& e) {
    if (c.always) throw;
    log::warn(-1, "soft nic: reaches no other process: ", e.what());
    return nullptr;
  }
}

class soft_fabric_type final : public fabric {
 public:
  explicit soft_fabric_type(const rdma::soft_options& o) : options(o) {
    std::random_device random;
    // Told apart from those of other processes, also of forked ones.
    const std::uint64_t id = (static_cast<std::uint64_t>(random()) << 32U | random()) ^
                             static_cast<std::uint64_t>(getpid());
    const reach_choice how = choose_reach(o);
    reaches_machines = how.how == reach::ucx;
    for (int i = 0; i < o.devices; ++i) {
      carriers_.push_back(make_carrier(how));
      networks_.push_back({how.always, carriers_.back().get()});
    }
    for (int i = 0; i < o.devices; ++i) {
      nics_.push_back(std::make_unique<soft_nic>(id, static_cast<std::uint32_t>(i), o));
    }
    for (std::uint32_t i = 0; i < nics_.size(); ++i) {
      std::unique_ptr<wire> w;
      if (!how.always) w = std::make_unique<local_wire>(*nics_[i], i, nics_, o);
      if (carriers_[i] != nullptr) {
        w = std::make_unique<far_wire>(*nics_[i], station{id, i, 0}, *carriers_[i], std::move(w));
      }
      nics_[i]->set_wire(std::move(w));
      adapters_.push_back(std::make_shared<soft_adapter>(*nics_[i], networks_[i], id, i));
    }
  }
  /// All threads end before the first NIC does: they call each other.
  ~soft_fabric_type() override {
    for (const auto& n : nics_) n->stop();
  }
  soft_fabric_type(const soft_fabric_type&) = delete;
  soft_fabric_type& operator=(const soft_fabric_type&) = delete;
  [[nodiscard]] std::vector<std::shared_ptr<adapter>> adapters() override { return adapters_; }

  const rdma::soft_options options;
  bool reaches_machines = false;

 private:
  std::vector<std::unique_ptr<carrier>> carriers_;
  std::vector<network> networks_;
  nic_list nics_;
  std::vector<std::shared_ptr<adapter>> adapters_;
};

}  // namespace

std::shared_ptr<fabric> soft_fabric(const rdma::soft_options& o) {
  if (o.devices < 1 || o.devices > 64 || o.lost < 0 || o.lost > 1000 || o.not_ready < 0 ||
      o.not_ready > 1000 || o.delay.count() < 0) {
    throw error(errc::invalid_argument, "rdma context",
                "1 to 64 devices, 0 to 1000 of 1000 lost or not ready, no negative delay");
  }
  static std::mutex mutex;
  static std::weak_ptr<soft_fabric_type> living;
  const std::scoped_lock lock(mutex);
  auto f = living.lock();
  if (f == nullptr) {
    f = std::make_shared<soft_fabric_type>(o);
    living = f;
    return f;
  }
  rdma::soft_options asked = o;
  asked.machines = f->options.machines;
  if (o.machines && !f->reaches_machines) {
    throw error(errc::invalid_argument, "rdma context",
                "another context of this process reaches this machine alone; end it first, or set "
                "its soft_options::machines");
  }
  if (f->options != asked) {
    throw error(errc::invalid_argument, "rdma context",
                "another context of this process has other soft_options; end it first");
  }
  return f;
}

}  // namespace crosswarp::verbs
