// The engine between machines: UCX's one-sided operations.
#include <sys/stat.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <utility>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "proxy/load.hpp"

namespace crosswarp::ucx {
namespace {

using namespace proxy_impl;

void check(ucs_status_t s, const char* call) {
  if (s == UCS_OK) return;
  throw error(s == UCS_ERR_NO_MEMORY ? errc::out_of_memory : errc::system, call,
              ucs_status_string(s));
}

status outcome_of(ucs_status_t s) noexcept {
  switch (s) {
    case UCS_OK:
      return status::ok;
    case UCS_ERR_UNREACHABLE:
      return status::unreachable;
    case UCS_ERR_UNSUPPORTED:
      return status::unsupported;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return status::invalid;
    default:
      return status::peer_lost;  // reset, timed out, cancelled because the peer is gone
  }
}

struct context_end {
  void operator()(ucp_context* c) const noexcept { ucp_cleanup(c); }
};
struct worker_end {
  void operator()(ucp_worker* w) const noexcept { ucp_worker_destroy(w); }
};
using context_handle = std::unique_ptr<ucp_context, context_end>;
using worker_handle = std::unique_ptr<ucp_worker, worker_end>;

context_handle make_context(int ranks) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read("CROSSWARP", nullptr, &config), "ucp_config_read");
  ucp_params_t p{};
  p.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  p.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP;
  p.estimated_num_eps = static_cast<std::size_t>(ranks);
  ucp_context_h c = nullptr;
  const ucs_status_t s = ucp_init(&p, config, &c);
  ucp_config_release(config);
  check(s, "ucp_init");
  return context_handle(c);
}

worker_handle make_worker(ucp_context_h c) {
  ucp_worker_params_t p{};
  p.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  p.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h w = nullptr;
  check(ucp_worker_create(c, &p, &w), "ucp_worker_create");
  return worker_handle(w);
}

class engine_ucx;

/// An operation that UCX has not ended yet. Stays until UCX calls back, also when its completion
/// was told before that the peer is lost.
struct request {
  engine_ucx* owner = nullptr;
  const char* call = "";
  int pe = 0;
  completion* c = nullptr;    ///< null: told already
  std::size_t at = 0;         ///< in the peer's list of those under way
  std::uint64_t flushes = 0;  ///< of a flush: operations that are visible when it ends
  // Of an atomic operation: UCX reads and writes these until its end.
  std::uint64_t operand = 0;
  std::uint64_t reply = 0;
  std::uint64_t* old = nullptr;
  int width = 8;
};

/// One flush of several ranks.
struct joint_flush : completion {
  engine_ucx* owner = nullptr;
  std::size_t open = 0;
  status outcome = status::ok;
  completion* whole = nullptr;
};

/// Which machine and network this process sees: ranks that agree in it share memory.
std::array<std::byte, 64> host_identity() {
  std::array<std::byte, 64> id{};
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(boot, text);
  struct stat net {};
  if (stat("/proc/self/ns/net", &net) == 0) text += "/" + std::to_string(net.st_ino);
  std::memcpy(id.data(), text.data(), std::min(text.size(), id.size()));
  return id;
}

class engine_ucx final : public engine {
 public:
  explicit engine_ucx(const engine_setup& s)
      : setup_(s),
        context_(make_context(s.size)),
        worker_(make_worker(context_.get())),
        peers_(static_cast<std::size_t>(s.size)) {
    check(ucp_worker_get_efd(worker_.get(), &descriptor_), "ucp_worker_get_efd");
    ucp_address_t* mine = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker_.get(), &mine, &length), "ucp_worker_get_address");
    const auto* bytes = reinterpret_cast<const std::byte*>(mine);
    std::vector<std::byte> address(bytes, bytes + length);
    ucp_worker_release_address(worker_.get(), mine);
    const auto host = host_identity();
    address.insert(address.begin(), host.begin(), host.end());
    auto all = setup_.meet(std::move(address));
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      peers_[r].same_host = std::equal(host.begin(), host.end(), all[r].begin());
      peers_[r].address.assign(all[r].begin() + static_cast<std::ptrdiff_t>(host.size()),
                               all[r].end());
    }
  }

  ~engine_ucx() override {
    std::vector<void*> closing;
    for (peer& p : peers_) {
      p.mourned = true;  // by nobody, but what ends now has no reason to be told
      // Those on this host go with the worker: they cannot be closed without the other side.
      if (p.endpoint != nullptr && !p.same_host) closing.push_back(close(p));
    }
    // The others leave too, so this is no graceful end: it takes no time.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (void* r : closing) {
      if (r == nullptr || UCS_PTR_IS_ERR(r)) continue;
      while (ucp_request_check_status(r) == UCS_INPROGRESS &&
             std::chrono::steady_clock::now() < end) {
        ucp_worker_progress(worker_.get());
      }
      ucp_request_free(r);
    }
    for (peer& p : peers_) {
      for (ucp_rkey_h k : p.keys) {
        if (k != nullptr) ucp_rkey_destroy(k);
      }
    }
    worker_.reset();
    for (const region& r : regions_) {
      if (r.handle != nullptr) ucp_mem_unmap(context_.get(), r.handle);
    }
  }
  engine_ucx(const engine_ucx&) = delete;
  engine_ucx& operator=(const engine_ucx&) = delete;

  [[nodiscard]] capabilities can() const noexcept override {
    return {.name = "ucx", .atomics = true, .target_progress = true};
  }

  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override {
    if (regions_.size() <= id) regions_.resize(id + std::size_t{1});
    region& r = regions_[id];
    std::vector<std::byte> card(sizeof(std::uint64_t));
    const auto base = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(mine.base));
    std::memcpy(card.data(), &base, sizeof(base));
    if (mine.bytes > 0) {
      ucp_mem_map_params_t p{};
      p.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
      p.address = mine.base;
      p.length = mine.bytes;
      check(ucp_mem_map(context_.get(), &p, &r.handle), "ucp_mem_map");
      void* key = nullptr;
      std::size_t length = 0;
      check(ucp_rkey_pack(context_.get(), r.handle, &key, &length), "ucp_rkey_pack");
      const auto* bytes = static_cast<const std::byte*>(key);
      card.insert(card.end(), bytes, bytes + length);
      ucp_rkey_buffer_release(key);
    }
    return card;
  }

  void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> offers) override {
    regions_[id].cards = std::move(offers);
  }

  void remove_region(std::uint16_t id) noexcept override {
    for (peer& p : peers_) {
      if (p.keys.size() > id && p.keys[id] != nullptr) {
        ucp_rkey_destroy(p.keys[id]);
        p.keys[id] = nullptr;
      }
    }
    if (regions_[id].handle != nullptr) ucp_mem_unmap(context_.get(), regions_[id].handle);
    regions_[id] = {};
  }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    const target t = find(to, c);
    if (t.key == nullptr) return true;
    request& r = begin_operation("put", to.pe, c);
    const ucp_request_param_t p = notify(r);
    settle(ucp_put_nbx(t.endpoint, from, bytes, t.address, t.key, &p), r);
    return true;
  }

  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    const target t = find(from, c);
    if (t.key == nullptr) return true;
    request& r = begin_operation("get", from.pe, c);
    const ucp_request_param_t p = notify(r);
    settle(ucp_get_nbx(t.endpoint, to, bytes, t.address, t.key, &p), r);
    return true;
  }

  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    const target t = find(at, c);
    if (t.key == nullptr) return true;
    request& r = begin_operation("atomic", at.pe, c);
    r.operand = op == amo::fetch ? 0 : op == amo::compare_swap ? comparand : operand;
    r.reply = operand;  // what a compare-swap puts there
    r.old = old;
    r.width = width;
    ucp_request_param_t p = notify(r);
    p.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    p.datatype = ucp_dt_make_contig(static_cast<std::size_t>(width));
    // A set is a swap whose answer nobody reads: UCX has no other.
    if (old != nullptr || op == amo::set || op == amo::swap || op == amo::compare_swap ||
        op == amo::fetch) {
      p.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
      p.reply_buffer = &r.reply;
    }
    settle(ucp_atomic_op_nbx(t.endpoint, native(op), &r.operand, 1, t.address, t.key, &p), r);
    return true;
  }

  bool fence() override { return ucp_worker_fence(worker_.get()) == UCS_OK; }

  bool flush(completion& c) override {
    joint_flush& f = take(flushes_, free_flushes_);
    f.owner = this;
    f.open = 1;
    f.outcome = status::ok;
    f.whole = &c;
    f.done = [](completion& one, status s) {
      auto& all = static_cast<joint_flush&>(one);
      if (s != status::ok) all.outcome = s;
      if (--all.open == 0) all.owner->flushed(all);
    };
    for (std::size_t pe = 0; pe < peers_.size(); ++pe) {
      peer& p = peers_[pe];
      if (p.sent == p.flushed) continue;
      if (p.lost || p.endpoint == nullptr) {
        // Operations that were complete here, and nobody will ever know whether there.
        p.flushed = p.sent;
        f.outcome = status::peer_lost;
        log_why(static_cast<int>(pe), "connection", p.why);
        continue;
      }
      ++f.open;
      request& r = begin("flush", static_cast<int>(pe), f);
      r.flushes = p.sent;
      const ucp_request_param_t how = notify(r);
      settle(ucp_ep_flush_nbx(p.endpoint, &how), r);
    }
    f.done(f, status::ok);
    return true;
  }

  bool progress() override { return ucp_worker_progress(worker_.get()) != 0; }

  void lose(int pe) override {
    peer& p = peers_[static_cast<std::size_t>(pe)];
    p.lost = true;
    p.mourned = true;
    // By network UCX ends what is under way; in shared memory it would wait for ever.
    if (p.endpoint != nullptr && !p.same_host) {
      void* const r = close(p);
      if (r != nullptr && !UCS_PTR_IS_ERR(r)) ucp_request_free(r);
    }
    // What the dead rank had sent is delivered first: afterwards UCX writes nowhere on its behalf.
    while (ucp_worker_progress(worker_.get()) != 0) {
    }
    while (!p.under_way.empty()) tell(*p.under_way.back(), status::peer_lost);
  }

  [[nodiscard]] int wake_descriptor() const noexcept override { return descriptor_; }
  bool arm() override { return ucp_worker_arm(worker_.get()) == UCS_OK; }

 private:
  struct region {
    ucp_mem_h handle = nullptr;
    /// By rank: its base address, then its packed key.
    std::vector<std::vector<std::byte>> cards;
  };
  struct peer {
    std::vector<std::byte> address;
    bool same_host = false;
    ucp_ep_h endpoint = nullptr;
    std::vector<ucp_rkey_h> keys;  // by region; made when first used
    std::vector<request*> under_way;
    std::uint64_t sent = 0;     // operations
    std::uint64_t flushed = 0;  // of them, those that are known to be visible
    bool lost = false;
    ucs_status_t why = UCS_OK;
    bool mourned = false;                  // the bootstrap has told of it
    std::vector<ucs_status_t> complaints;  // that were logged
  };
  struct target {
    ucp_ep_h endpoint = nullptr;
    ucp_rkey_h key = nullptr;
    std::uint64_t address = 0;
  };

  static ucp_atomic_op_t native(amo op) noexcept {
    switch (op) {
      case amo::bit_and:
        return UCP_ATOMIC_OP_AND;
      case amo::bit_or:
        return UCP_ATOMIC_OP_OR;
      case amo::bit_xor:
        return UCP_ATOMIC_OP_XOR;
      case amo::set:
      case amo::swap:
        return UCP_ATOMIC_OP_SWAP;
      case amo::compare_swap:
        return UCP_ATOMIC_OP_CSWAP;
      case amo::fetch:
      case amo::add:
        break;
    }
    return UCP_ATOMIC_OP_ADD;
  }

  /// One that is not in use; they stay where they are.
  template <class T>
  static T& take(std::deque<T>& all, std::vector<T*>& free) {
    if (free.empty()) free.push_back(&all.emplace_back());
    T* const taken = free.back();
    free.pop_back();
    return *taken;
  }

  request& begin(const char* call, int pe, completion& c) {
    peer& p = peers_[static_cast<std::size_t>(pe)];
    request& r = take(requests_, free_requests_);
    r.owner = this;
    r.call = call;
    r.pe = pe;
    r.c = &c;
    r.at = p.under_way.size();
    r.old = nullptr;
    r.flushes = 0;
    p.under_way.push_back(&r);
    return r;
  }

  request& begin_operation(const char* call, int pe, completion& c) {
    ++peers_[static_cast<std::size_t>(pe)].sent;
    return begin(call, pe, c);
  }

  static ucp_request_param_t notify(request& r) noexcept {
    ucp_request_param_t p{};
    p.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    p.user_data = &r;
    p.cb.send = [](void* handle, ucs_status_t s, void* user) {
      auto& ended = *static_cast<request*>(user);
      ended.owner->end(ended, s);
      ucp_request_free(handle);
    };
    return p;
  }

  /// What a call returned, when it did not leave its end to the callback.
  void settle(void* handle, request& r) {
    if (handle == nullptr) end(r, UCS_OK);
    if (UCS_PTR_IS_ERR(handle)) end(r, UCS_PTR_STATUS(handle));
  }

  /// Off the list, and the completion called.
  void tell(request& r, status s) {
    auto& list = peers_[static_cast<std::size_t>(r.pe)].under_way;
    list[r.at] = list.back();
    list[r.at]->at = r.at;
    list.pop_back();
    completion& c = *std::exchange(r.c, nullptr);
    c.done(c, s);
  }

  void end(request& r, ucs_status_t s) {
    peer& p = peers_[static_cast<std::size_t>(r.pe)];
    if (s == UCS_OK) p.flushed = std::max(p.flushed, r.flushes);
    if (r.c != nullptr) {
      if (r.old != nullptr && s == UCS_OK) {
        *r.old = r.width == 4 ? static_cast<std::uint32_t>(r.reply) : r.reply;
      }
      log_why(r.pe, r.call, s);
      tell(r, outcome_of(s));
    }
    free_requests_.push_back(&r);
  }

  /// What UCX says, which statuses do not; once, as all that comes later ends in the same way.
  void log_why(int pe, const char* call, ucs_status_t s) {
    peer& p = peers_[static_cast<std::size_t>(pe)];
    if (s == UCS_OK || p.mourned) return;
    if (std::find(p.complaints.begin(), p.complaints.end(), s) != p.complaints.end()) return;
    p.complaints.push_back(s);
    log::error(setup_.rank, "ucx: ", call, ": ", ucs_status_string(s), " (rank ", pe, ")");
  }

  void flushed(joint_flush& f) {
    completion& whole = *f.whole;
    const status outcome = f.outcome;
    free_flushes_.push_back(&f);
    whole.done(whole, outcome);
  }

  /// The endpoint, key and address of a place, made when first used. When that fails the
  /// completion has been told.
  target find(const place& at, completion& c) {
    peer& p = peers_[static_cast<std::size_t>(at.pe)];
    if (p.lost) log_why(at.pe, "connection", p.why);
    if (p.lost || !connect(at.pe)) {
      c.done(c, p.lost ? status::peer_lost : status::unreachable);
      return {};
    }
    const std::vector<std::byte>& card = regions_[at.region].cards[static_cast<std::size_t>(at.pe)];
    if (p.keys.size() <= at.region) p.keys.resize(at.region + std::size_t{1});
    ucp_rkey_h& key = p.keys[at.region];
    if (key == nullptr) {
      const ucs_status_t s =
          ucp_ep_rkey_unpack(p.endpoint, card.data() + sizeof(std::uint64_t), &key);
      log_why(at.pe, "key of its memory", s);
      if (s != UCS_OK) {
        key = nullptr;
        c.done(c, status::unreachable);
        return {};
      }
    }
    std::uint64_t base = 0;
    std::memcpy(&base, card.data(), sizeof(base));
    return {p.endpoint, key, base + at.offset};
  }

  bool connect(int pe) {
    peer& p = peers_[static_cast<std::size_t>(pe)];
    if (p.endpoint != nullptr) return true;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(p.address.data());
    // UCX's shared memory knows no lost peers, and is not taken when one asks for them. On one
    // host the bootstrap tells.
    params.err_mode = p.same_host ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
    // Not logged before an operation fails of it: who leaves at the end of a job comes here too.
    params.err_handler.cb = [](void* lost, ucp_ep_h /*ep*/, ucs_status_t s) {
      static_cast<peer*>(lost)->lost = true;
      static_cast<peer*>(lost)->why = s;
    };
    params.err_handler.arg = &p;
    const ucs_status_t s = ucp_ep_create(worker_.get(), &params, &p.endpoint);
    log_why(pe, "connection", s);
    return s == UCS_OK;
  }

  static void* close(peer& p) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    return ucp_ep_close_nbx(std::exchange(p.endpoint, nullptr), &how);
  }

  engine_setup setup_;
  context_handle context_;
  worker_handle worker_;
  int descriptor_ = -1;
  std::vector<peer> peers_;
  std::vector<region> regions_;
  std::deque<request> requests_;
  std::vector<request*> free_requests_;
  std::deque<joint_flush> flushes_;
  std::vector<joint_flush*> free_flushes_;
};

}  // namespace
}  // namespace crosswarp::ucx

extern "C" {
__attribute__((
    visibility("default"))) extern const crosswarp::proxy_impl::engine_module crosswarp_engine;
const crosswarp::proxy_impl::engine_module crosswarp_engine = {
    {CROSSWARP_VERSION}, [](const crosswarp::proxy_impl::engine_setup& s) {
      return std::unique_ptr<crosswarp::proxy_impl::engine>(
          std::make_unique<crosswarp::ucx::engine_ucx>(s));
    }};
}
