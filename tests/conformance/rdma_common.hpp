// What the conformance suite of rdma is made of: two ends that are connected, and kernels that use
// them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/rdma.hpp"
#include "protocols/common.hpp"
#include "support/rdma_ends.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace rdma = crosswarp::rdma;
namespace mlx5 = crosswarp::device::mlx5;
using context = dev::kernel_context;
using cw::status;
using dev::rdma::completion;
using dev::rdma::operation;
using dev::rdma::request;
using dev::rdma::syndrome;
using protocols::by_block;
using protocols::by_thread;
using protocols::by_warp;
using view = dev::rdma::endpoint;
using shared_view = dev::rdma::shared_receive_queue;

/// One who posts alone.
struct by_sole {
  CW_FN auto operator()(const context& /*ctx*/) const { return dev::rdma::sole_producer{}; }
};

// ---- two ends that are connected

/// An endpoint with memory of its own.
struct side {
  side(const rdma::device_context& d, const rdma::endpoint_options& o,
       rdma::access allowed = rdma::access::all, std::size_t bytes = 4096)
      : memory(test_device(), bytes),
        region(d.register_memory(memory.data(), bytes, allowed)),
        ep(d.make_endpoint(o)) {}

  [[nodiscard]] dev::rdma::local_memory local(std::uint64_t at = 0) const {
    return region.device().local(at);
  }
  [[nodiscard]] dev::rdma::remote_memory remote(std::uint64_t at = 0) const {
    return region.device().remote(at);
  }
  void fill(int seed) {
    std::vector<std::uint8_t> v(memory.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      v[i] = static_cast<std::uint8_t>(i * 31 + static_cast<std::size_t>(seed) * 7 + 1);
    }
    memory.write(v);
  }
  template <class T>
  void set(std::size_t at, T value) {
    auto all = memory.read();
    std::memcpy(all.data() + at, &value, sizeof(value));
    memory.write(all);
  }
  template <class T>
  [[nodiscard]] T get(std::size_t at) const {
    T value;
    const auto all = memory.read();
    std::memcpy(&value, all.data() + at, sizeof(value));
    return value;
  }

  cw::buffer<std::uint8_t> memory;
  rdma::memory_region region;
  rdma::endpoint ep;
};

inline void connect(side& a, side& b) {
  a.ep.connect(b.ep.address());
  b.ep.connect(a.ep.address());
}

// ---- kernels

/// All of them, one after the other, each to its end.
template <class By>
struct perform {
  CW_FN void operator()(const context& ctx, const view& ep, const request* all, int count,
                        completion* out) const {
    const auto g = By{}(ctx);
    for (int i = 0; i < count; ++i) {
      const completion c = ep.perform(g, all[i]);
      if (g.rank() == 0) out[i] = c;
    }
  }
};

template <class By>
struct receive {
  CW_FN void operator()(const context& ctx, const view& ep, int count, completion* out) const {
    const auto g = By{}(ctx);
    for (int i = 0; i < count; ++i) {
      const completion c = ep.wait_recv(g);
      if (g.rank() == 0) out[i] = c;
    }
  }
};

template <class By>
struct post_receives {
  CW_FN void operator()(const context& ctx, const view& ep, dev::rdma::local_memory to,
                        std::uint32_t bytes, int count, status* out) const {
    const auto g = By{}(ctx);
    status s = status::ok;
    for (int i = 0; i < count && s == status::ok; ++i) {
      s = ep.post_recv(g, {to.address + static_cast<std::uint64_t>(i) * bytes, to.lkey}, bytes)
              .outcome;
    }
    if (s == status::ok) s = ep.update_recv_dbr_record(g);
    if (g.rank() == 0) *out = s;
  }
};

/// Receives one after the other, `bytes` apart; out: how the last one went.
template <class By>
struct post_shared {
  CW_FN void operator()(const context& ctx, shared_view q, dev::rdma::local_memory to,
                        std::uint32_t bytes, int count, dev::rdma::posted* out) const {
    const auto g = By{}(ctx);
    dev::rdma::posted p;
    for (int i = 0; i < count && p.outcome == status::ok; ++i) {
      p = q.post_recv(g, {to.address + static_cast<std::uint64_t>(i) * bytes, to.lkey}, bytes);
    }
    const status told = q.update_dbr_record(g);
    if (p.outcome == status::ok) p.outcome = told;
    if (g.rank() == 0) *out = p;
  }
};

template <class By>
constexpr int threads_of() {
  return std::is_same_v<By, by_block> ? 48 : std::is_same_v<By, by_warp> ? 32 : 1;
}

template <class By, class Kernel, class... Args>
void start(Kernel k, Args... args) {
  cw::stream s(test_device());
  cw::launch(s, {.threads = threads_of<By>()}, k, args...);
  s.sync();
}

template <class By = by_thread>
std::vector<completion> perform_all(const side& a, const std::vector<request>& all,
                                    const dev::wait_limits& limits = {}) {
  cw::buffer<request> requests(test_device(), std::span<const request>(all));
  cw::buffer<completion> out(test_device(), all.size());
  start<By>(perform<By>{}, a.ep.device(limits), requests.data(), static_cast<int>(all.size()),
            out.data());
  return out.read();
}
template <class By = by_thread>
completion perform_one(const side& a, const request& r, const dev::wait_limits& limits = {}) {
  return perform_all<By>(a, {r}, limits)[0];
}

template <class By = by_thread>
void post_recv(const side& a, std::uint64_t at, std::uint32_t bytes, int count = 1) {
  cw::buffer<status> out(test_device(), 1);
  start<By>(post_receives<By>{}, a.ep.device(), a.local(at), bytes, count, out.data());
  ASSERT_EQ(out.read()[0], status::ok);
}
template <class By = by_thread>
std::vector<completion> received(const side& a, int count, const dev::wait_limits& limits = {}) {
  cw::buffer<completion> out(test_device(), static_cast<std::size_t>(count));
  start<By>(receive<By>{}, a.ep.device(limits), count, out.data());
  return out.read();
}

/// Devices that are none of ours are slower, and have no more to show in more rounds.
inline int rounds(int soft, int others) {
  return over_soft() ? soft : others;
}

inline dev::wait_limits soon() {
  return dev::wait_limits{}.within(2'000'000'000);
}

inline request write_of(const side& a, const side& b, std::uint32_t bytes) {
  return {.op = operation::write, .bytes = bytes, .local = a.local(), .remote = b.remote()};
}

/// One that the other end refuses, with remote_access: its key is none.
inline request refused_write_of(const side& a, const side& b) {
  request r = write_of(a, b, 8);
  r.remote.rkey = 0;
  return r;
}

/// Masked atomics, and with them those of 4 bytes.
inline bool has_masks() {
  return rdma_backend() != rdma::backend::verbs;
}

/// Both kinds of completion queue.
class RdmaPairs : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] rdma::endpoint_options options(int depth = 64) const {
    rdma::endpoint_options o;
    o.send_depth = depth;
    o.receive_depth = depth;
    o.collapsed = GetParam();
    return o;
  }
  [[nodiscard]] rdma::device_context open() const { return near_end(); }

 private:
  rdma::context all_{rdma_backend()};  // so that its devices live all the time
};
inline std::string kind_name(const testing::TestParamInfo<bool>& i) {
  return i.param ? "collapsed" : "ring";
}
