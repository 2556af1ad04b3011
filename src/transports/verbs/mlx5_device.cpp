// mlx5 adapters as a backend: kernels drive their queues, by direct verbs (DEVX). Not yet run on
// hardware.
#include <dlfcn.h>
#include <infiniband/mlx5_api.h>
#include <infiniband/mlx5dv.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "crosswarp/error.hpp"
#include "exec/backends.hpp"
#include "transports/verbs/mlx5_qp.hpp"
#include "transports/verbs/patience.hpp"
#include "transports/verbs/verbs_context.hpp"

namespace crosswarp::verbs {
namespace {

// ---- libmlx5, loaded as libibverbs is

struct mlx5dv {
  decltype(&::mlx5dv_is_supported) is_supported;
  decltype(&::mlx5dv_open_device) open_device;
  decltype(&::mlx5dv_init_obj) init_obj;
  decltype(&::mlx5dv_devx_alloc_uar) alloc_uar;
  decltype(&::mlx5dv_devx_free_uar) free_uar;
  decltype(&::mlx5dv_devx_query_eqn) query_eqn;
  decltype(&::mlx5dv_devx_umem_reg) umem_reg;
  decltype(&::mlx5dv_devx_umem_dereg) umem_dereg;
  decltype(&::mlx5dv_devx_obj_create) obj_create;
  decltype(&::mlx5dv_devx_obj_modify) obj_modify;
  decltype(&::mlx5dv_devx_obj_query) obj_query;
  decltype(&::mlx5dv_devx_obj_destroy) obj_destroy;

  /// Throws error(not_supported) that says what to install.
  static const mlx5dv& load();
};

mlx5dv load_all() {
  const shared_library l("libmlx5.so.1", "ibverbs-providers");
  mlx5dv m{};
  l.find("mlx5dv_is_supported", m.is_supported);
  l.find("mlx5dv_open_device", m.open_device);
  l.find("mlx5dv_init_obj", m.init_obj);
  l.find("mlx5dv_devx_alloc_uar", m.alloc_uar);
  l.find("mlx5dv_devx_free_uar", m.free_uar);
  l.find("mlx5dv_devx_query_eqn", m.query_eqn);
  l.find("mlx5dv_devx_umem_reg", m.umem_reg);
  l.find("mlx5dv_devx_umem_dereg", m.umem_dereg);
  l.find("mlx5dv_devx_obj_create", m.obj_create);
  l.find("mlx5dv_devx_obj_modify", m.obj_modify);
  l.find("mlx5dv_devx_obj_query", m.obj_query);
  l.find("mlx5dv_devx_obj_destroy", m.obj_destroy);
  return m;
}

const mlx5dv& mlx5dv::load() {
  static const mlx5dv all = load_all();
  return all;
}

// ---- the control path of an adapter

class adapter_control final : public mlx5_control {
 public:
  explicit adapter_control(std::shared_ptr<verbs_context> c)
      : context_(std::move(c)), library_(mlx5dv::load()), page_(make_page()) {
    mlx5dv_pd pd{};
    mlx5dv_obj o{};
    o.pd.in = context_->domain();
    o.pd.out = &pd;
    check(library_.init_obj(&o, MLX5DV_OBJ_PD), "mlx5dv_init_obj", context_->name());
    domain_ = pd.pdn;
    check(library_.query_eqn(context_->context(), 0, &event_queue_), "mlx5dv_devx_query_eqn",
          context_->name());
  }
  ~adapter_control() override {
    if (!mapped_.empty()) exec::cuda::unpin(page_->base_addr);
  }
  adapter_control(const adapter_control&) = delete;
  adapter_control& operator=(const adapter_control&) = delete;

  [[nodiscard]] doorbell_page doorbells() const override {
    const auto offset =
        static_cast<std::byte*>(page_->reg_addr) - static_cast<std::byte*>(page_->base_addr);
    return {page_->page_id, page_->base_addr, static_cast<std::size_t>(offset)};
  }
  [[nodiscard]] std::uint32_t domain() const override { return domain_; }
  [[nodiscard]] std::uint32_t event_queue() const override { return event_queue_; }

  memory add_memory(void* p, std::size_t bytes) override {
    mlx5dv_devx_umem* const m =
        library_.umem_reg(context_->context(), p, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (m == nullptr) {
      throw error::from_errno(errno, "mlx5dv_devx_umem_reg", context_->name());
    }
    return {reinterpret_cast<handle>(m), m->umem_id};
  }
  void remove_memory(handle m) noexcept override {
    library_.umem_dereg(reinterpret_cast<mlx5dv_devx_umem*>(m));
  }
  handle create(const mlx5_command::bits& in, mlx5_command::bits& out) override {
    mlx5dv_devx_obj* const made =
        library_.obj_create(context_->context(), in.bytes().data(), in.bytes().size(),
                            out.bytes().data(), out.bytes().size());
    if (made == nullptr) {
      check(errno, "mlx5dv_devx_obj_create",
            context_->name() + ", syndrome " + std::to_string(mlx5_command::syndrome(out)));
    }
    return reinterpret_cast<handle>(made);
  }
  void modify(handle it, const mlx5_command::bits& in, mlx5_command::bits& out) override {
    check(library_.obj_modify(object(it), in.bytes().data(), in.bytes().size(), out.bytes().data(),
                              out.bytes().size()),
          "mlx5dv_devx_obj_modify", context_->name());
  }
  void query(handle it, const mlx5_command::bits& in, mlx5_command::bits& out) override {
    check(library_.obj_query(object(it), in.bytes().data(), in.bytes().size(), out.bytes().data(),
                             out.bytes().size()),
          "mlx5dv_devx_obj_query", context_->name());
  }
  void destroy(handle it) noexcept override { library_.obj_destroy(object(it)); }

  [[nodiscard]] port_facts port(int number) const override {
    return {context_->port(number).link_layer == IBV_LINK_LAYER_ETHERNET,
            context_->limits().max_qp_rd_atom};
  }
  [[nodiscard]] endpoint_address address(std::uint32_t qpn,
                                         const rdma::endpoint_options& o) const override {
    return address_of(*context_, qpn, o, random_number());
  }
  [[nodiscard]] int gid_index(int port, int wish) const override {
    return context_->gid_index(port, wish);
  }

  /// libibverbs asks the network.
  [[nodiscard]] std::array<std::uint8_t, 6> mac_of(const endpoint_address& peer,
                                                   const rdma::endpoint_options& o) const override {
    ibv_ah_attr where = path_to(peer, o);
    const ibverbs& l = context_->library;
    const owned<ibv_ah> ah = own(l.create_ah(context_->domain(), &where), l.destroy_ah,
                                 "ibv_create_ah", context_->name());
    mlx5dv_ah seen{};
    mlx5dv_obj obj{};
    obj.ah.in = ah.get();
    obj.ah.out = &seen;
    check(library_.init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj", context_->name());
    return std::to_array(seen.av->rmac);
  }

  [[nodiscard]] std::uint64_t* map_doorbell(device_ref d) override {
    const doorbell_page p = doorbells();
    if (d.kind() == device_kind::cpu) {
      // A CPU keeps such stores back, and makes one of two: a doorbell would be late, or lost.
      if (combines_) {
        throw error(errc::not_supported, "rdma endpoint",
                    context_->name() +
                        " has no doorbell that is not write-combining, which kernels on CPU "
                        "threads need; open it for a GPU, or use the backend verbs");
      }
      return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(p.base) + p.offset);
    }
    const std::scoped_lock lock(mutex_);
    const auto [at, fresh] = mapped_.try_emplace(d.ordinal());
    if (fresh) {
      try {
        at->second = exec::cuda::map_doorbell(
            d, p.base, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), p.offset);
      } catch (...) {
        mapped_.erase(at);
        throw;
      }
    }
    return at->second;
  }

 private:
  using page_owner = std::unique_ptr<mlx5dv_devx_uar, decltype(&::mlx5dv_devx_free_uar)>;

  static mlx5dv_devx_obj* object(handle it) noexcept {
    return reinterpret_cast<mlx5dv_devx_obj*>(it);
  }
  /// Not cached where that can be had: a GPU's store is to leave at once.
  page_owner make_page() {
    mlx5dv_devx_uar* p = library_.alloc_uar(context_->context(), MLX5DV_UAR_ALLOC_TYPE_NC);
    combines_ = p == nullptr;
    if (combines_) p = library_.alloc_uar(context_->context(), MLX5DV_UAR_ALLOC_TYPE_BF);
    if (p == nullptr) {
      check(errno, "mlx5dv_devx_alloc_uar",
            context_->name() + "; containers need CAP_SYS_RAWIO or --privileged");
    }
    return {p, library_.free_uar};
  }

  std::shared_ptr<verbs_context> context_;
  const mlx5dv& library_;
  bool combines_ = false;  ///< the page's stores; before it: make_page() says so
  page_owner page_;
  std::uint32_t domain_ = 0;
  std::uint32_t event_queue_ = 0;
  std::mutex mutex_;
  std::map<int, std::uint64_t*> mapped_;  ///< the doorbell as GPUs see it
};

// ---- devices

class mlx5_adapter final : public adapter {
 public:
  explicit mlx5_adapter(std::shared_ptr<verbs_context> c)
      : context_(std::move(c)), control_(std::make_shared<adapter_control>(context_)) {}
  [[nodiscard]] const std::string& name() const noexcept override { return context_->name(); }
  [[nodiscard]] int ports() const noexcept override { return context_->limits().phys_port_cnt; }
  [[nodiscard]] bool is_active(int port) override { return context_->is_active(port); }
  [[nodiscard]] std::chrono::nanoseconds retry_after() const noexcept override {
    return adapters_retry_after;
  }
  std::unique_ptr<registered> register_memory(const memory_range& m, access allowed) override {
    return std::make_unique<verbs_registered>(context_, m, allowed);
  }
  std::unique_ptr<queue_pair> make_queue_pair(const qp_setup& s) override {
    return std::make_unique<mlx5_pair>(control_, s);
  }
  std::unique_ptr<shared_receives> make_shared_receives(const shared_setup& s) override {
    return std::make_unique<mlx5_shared>(control_, s);
  }
  void set_link(bool /*up*/) override { refuse_link(name()); }

 private:
  std::shared_ptr<verbs_context> context_;
  std::shared_ptr<adapter_control> control_;
};

}  // namespace

std::shared_ptr<fabric> mlx5_fabric() {
  return fabric_of<mlx5_adapter>::get([] {
    const mlx5dv& m = mlx5dv::load();
    const auto open = [&](ibv_device* d) {
      mlx5dv_context_attr with{};
      with.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
      return m.open_device(d, &with);
    };
    return open_all(ibverbs::load(), m.is_supported, open);
  });
}

}  // namespace crosswarp::verbs
