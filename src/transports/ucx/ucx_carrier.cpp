// Frames between machines for soft NICs: UCX's active messages.
#include <ucp/api/ucp.h>

#include <cstring>
#include <map>
#include <random>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "transports/verbs/carrier.hpp"

namespace crosswarp::ucx {
namespace {

using verbs::carrier;

constexpr unsigned message_id = 7;

void check(ucs_status_t s, const char* call) {
  if (s != UCS_OK) throw error(errc::system, call, ucs_status_string(s));
}

/// In front of each message. A line is named by who opened it.
struct message_head {
  enum class kind : std::uint32_t {
    open,    ///< the message is the route to who opens
    frame,   ///< of who opened
    answer,  ///< to who opened
  };
  std::uint64_t opener = 0;
  std::uint64_t number = 0;
  kind what = kind::open;
  std::uint32_t reserved = 0;
};

/// What an address says of such a carrier; UCX's own address follows.
struct route_head {
  char kind[8] = {'u', 'c', 'x', 0, 0, 0, 0, 0};
  std::uint64_t name = 0;
};

class ucx_carrier final : public carrier {
 public:
  ucx_carrier() {
    std::random_device random;
    name_ = static_cast<std::uint64_t>(random()) << 32U | random();
    start();
    route_head head;
    head.name = name_;
    // Networks alone: shared memory does not tell of a process that died.
    ucp_worker_attr_t attr{};
    attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attr.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    check(ucp_worker_query(worker_, &attr), "ucp_worker_query");
    route_.resize(sizeof(head) + attr.address_length);
    std::memcpy(route_.data(), &head, sizeof(head));
    std::memcpy(route_.data() + sizeof(head), attr.address, attr.address_length);
    ucp_worker_release_address(worker_, attr.address);
  }
  ~ucx_carrier() override { end(); }
  ucx_carrier(const ucx_carrier&) = delete;
  ucx_carrier& operator=(const ucx_carrier&) = delete;

  [[nodiscard]] const std::vector<std::byte>& route() const noexcept override { return route_; }

  [[nodiscard]] std::string why_not(std::span<const std::byte> route) const override {
    route_head there;
    return read_route(route, there) ? "" : "its process does not use UCX; see CROSSWARP_RDMA_WIRE";
  }

  line open(std::span<const std::byte> route) override {
    route_head there;
    if (!read_route(route, there)) return 0;
    ucp_ep* const ep = connect(route, last_ + 1);
    if (ep == nullptr) return 0;
    const line made = ++last_;
    lines_[made] = {ep, true, {name_, made}};
    post(lines_[made], message_head::kind::open, route_);
    return made;
  }

  void send(line to, std::vector<std::byte> frame) override {
    const auto it = lines_.find(to);
    if (it == lines_.end() || it->second.ep == nullptr) return;
    const bool opened = it->second.opened_here;
    post(it->second, opened ? message_head::kind::frame : message_head::kind::answer,
         std::move(frame));
  }

  bool progress(user& u) override {
    user_ = &u;
    bool moved = ucp_worker_progress(worker_) != 0;
    user_ = nullptr;
    while (!broken_.empty()) {
      const line which = broken_.back();
      broken_.pop_back();
      const auto it = lines_.find(which);
      if (it == lines_.end()) continue;
      if (!it->second.opened_here) accepted_.erase(it->second.name);
      close(it->second.ep);
      lines_.erase(it);
      u.lost(which);
      moved = true;
    }
    return moved;
  }

  [[nodiscard]] int descriptor() const noexcept override { return descriptor_; }
  bool arm() override { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  /// Who opened it, and which of its lines it is.
  using line_name = std::pair<std::uint64_t, std::uint64_t>;
  struct connection {
    ucp_ep_h ep = nullptr;
    bool opened_here = false;
    line_name name;
  };
  /// Data that UCX still reads.
  struct message {
    message_head head;
    std::vector<std::byte> data;
  };
  /// Told by UCX that an endpoint is broken.
  struct mourner {
    ucx_carrier* owner;
    line which;
  };

  static bool read_route(std::span<const std::byte> route, route_head& r) {
    const route_head model;
    if (route.size() <= sizeof(r)) return false;
    std::memcpy(&r, route.data(), sizeof(r));
    return std::memcmp(r.kind, model.kind, sizeof(r.kind)) == 0;
  }

  void start() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read("CROSSWARP", nullptr, &config), "ucp_config_read");
    ucp_params_t p{};
    p.field_mask = UCP_PARAM_FIELD_FEATURES;
    p.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t s = ucp_init(&p, config, &context_);
    ucp_config_release(config);
    check(s, "ucp_init");
    try {
      ucp_worker_params_t w{};
      w.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
      w.thread_mode = UCS_THREAD_MODE_SERIALIZED;
      check(ucp_worker_create(context_, &w, &worker_), "ucp_worker_create");
      ucp_am_handler_param_t h{};
      h.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
      h.id = message_id;
      h.flags = UCP_AM_FLAG_WHOLE_MSG;
      h.cb = [](void* self, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                const ucp_am_recv_param_t* how) {
        static_cast<ucx_carrier*>(self)->hear({static_cast<const std::byte*>(head), head_bytes},
                                              {static_cast<const std::byte*>(data), bytes}, *how);
        return UCS_OK;
      };
      h.arg = this;
      check(ucp_worker_set_am_recv_handler(worker_, &h), "ucp_worker_set_am_recv_handler");
      check(ucp_worker_get_efd(worker_, &descriptor_), "ucp_worker_get_efd");
    } catch (...) {
      end();
      throw;
    }
  }

  void end() noexcept {
    for (auto& [which, c] : lines_) close(c.ep);
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  ucp_ep_h connect(std::span<const std::byte> route, line as) {
    mourners_.push_back(std::make_unique<mourner>(mourner{this, as}));
    ucp_ep_params_t p{};
    p.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                   UCP_EP_PARAM_FIELD_ERR_HANDLER;
    p.address = reinterpret_cast<const ucp_address_t*>(route.data() + sizeof(route_head));
    p.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    p.err_handler.cb = [](void* who, ucp_ep_h /*ep*/, ucs_status_t /*why*/) {
      const auto& m = *static_cast<const mourner*>(who);
      m.owner->broken_.push_back(m.which);
    };
    p.err_handler.arg = mourners_.back().get();
    ucp_ep_h ep = nullptr;
    const ucs_status_t s = ucp_ep_create(worker_, &p, &ep);
    if (s == UCS_OK) return ep;
    log::warn(-1, "soft nic: ucx: no connection: ", ucs_status_string(s));
    return nullptr;
  }

  /// Without the other side, which may be gone.
  static void close(ucp_ep_h ep) noexcept {
    if (ep == nullptr) return;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const r = ucp_ep_close_nbx(ep, &how);
    if (r != nullptr && !UCS_PTR_IS_ERR(r)) ucp_request_free(r);
  }

  void post(connection& c, message_head::kind what, std::vector<std::byte> data) {
    auto m = std::make_unique<message>();
    m->head = {c.name.first, c.name.second, what, 0};
    m->data = std::move(data);
    ucp_request_param_t p{};
    p.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    // At once, and so in order.
    p.flags = UCP_AM_SEND_FLAG_EAGER;
    p.user_data = m.get();
    p.cb.send = [](void* request, ucs_status_t /*s*/, void* sent) {
      delete static_cast<message*>(sent);
      ucp_request_free(request);
    };
    void* const r = ucp_am_send_nbx(c.ep, message_id, &m->head, sizeof(m->head), m->data.data(),
                                    m->data.size(), &p);
    if (r != nullptr && !UCS_PTR_IS_ERR(r)) {
      [[maybe_unused]] const message* const kept = m.release();  // the callback's now
    }
    // A failure also comes to the mourner.
  }

  void hear(std::span<const std::byte> head, std::span<const std::byte> data,
            const ucp_am_recv_param_t& how) {
    message_head h;
    if (head.size() != sizeof(h) || (how.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return;
    std::memcpy(&h, head.data(), sizeof(h));
    if (h.what == message_head::kind::open) return accept(h, data);
    line from = h.number;
    if (h.what == message_head::kind::frame) {
      const auto it = accepted_.find({h.opener, h.number});
      if (it == accepted_.end()) return;  // closed
      from = it->second;
    }
    const auto it = lines_.find(from);
    const bool answer = h.what == message_head::kind::answer;
    if (it == lines_.end() || it->second.opened_here != answer) return;
    if (answer && h.opener != name_) return;
    if (data.size() > verbs::most_frame_bytes || !user_->take(from, answer, data)) {
      broken_.push_back(from);
    }
  }

  void accept(const message_head& h, std::span<const std::byte> route) {
    route_head there;
    const line_name name{h.opener, h.number};
    if (!read_route(route, there) || there.name != h.opener || accepted_.contains(name)) return;
    ucp_ep* const ep = connect(route, last_ + 1);
    if (ep == nullptr) return;
    const line made = ++last_;
    lines_[made] = {ep, false, name};
    accepted_[name] = made;
  }

  std::uint64_t name_ = 0;
  std::vector<std::byte> route_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  user* user_ = nullptr;  ///< during progress()
  std::map<line, connection> lines_;
  std::map<line_name, line> accepted_;
  std::vector<line> broken_;                        ///< not told yet; some of them more than once
  std::vector<std::unique_ptr<mourner>> mourners_;  ///< UCX may call them to the end
  line last_ = 0;
};

}  // namespace
}  // namespace crosswarp::ucx

extern "C" {
__attribute__((
    visibility("default"))) extern const crosswarp::verbs::carrier_module crosswarp_carrier;
const crosswarp::verbs::carrier_module crosswarp_carrier = {
    {CROSSWARP_VERSION}, [] {
      return std::unique_ptr<crosswarp::verbs::carrier>(
          std::make_unique<crosswarp::ucx::ucx_carrier>());
    }};
}
