// What the examples local_ops and dist_ops share: one side asks, the other is asked.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/rdma.hpp"

namespace rdma_ops {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace rdma = crosswarp::rdma;

// Where things are in each side's memory.
constexpr std::uint32_t text_bytes = 64;
constexpr std::uint32_t data_bytes = 1024;
constexpr std::size_t counter_at = 0;  ///< atomics
constexpr std::size_t text_at = 64;    ///< send and receive
constexpr std::size_t data_at = 1024;  ///< write
constexpr std::size_t copy_at = 2048;  ///< read
constexpr std::size_t all_bytes = 4096;
constexpr std::uint64_t counter_before = 100;
constexpr std::uint64_t added = 42;

inline unsigned char data_byte(std::size_t i) {
  return static_cast<unsigned char>(i * 7 + 1);
}

/// What came of each operation.
struct outcomes {
  dev::rdma::completion send, write, read, add;
};

/// The side that asks: a kernel of one thread.
struct ask {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::region mine, dev::rdma::region theirs, outcomes* out) const {
    const auto me = ctx.thread();
    out->send = ep.send(me, mine.local(text_at), text_bytes);
    out->write = ep.write(me, mine.local(data_at), theirs.remote(data_at), data_bytes);
    out->read = ep.read(me, mine.local(copy_at), theirs.remote(data_at), data_bytes);
    out->add = ep.fetch_add(me, mine.local(counter_at), theirs.remote(counter_at), added);
  }
};

/// The side that is asked has a part in the first of them only: it says where the message goes.
struct expect_message {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::region mine, cw::status* out) const {
    const auto me = ctx.thread();
    *out = ep.post_recv(me, mine.local(text_at), text_bytes).outcome;
    if (*out == cw::status::ok) *out = ep.update_recv_dbr_record(me);
  }
};
struct take_message {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::completion* out) const {
    *out = ep.wait_recv(ctx.thread());
  }
};

inline void check(bool right, const std::string& what) {
  if (!right) throw cw::error(cw::errc::device_fault, "rdma_ops", what);
}
inline void check(const dev::rdma::completion& c, const char* what) {
  check(c.outcome == cw::status::ok,
        std::string(what) + ": " + cw::to_string(c.outcome) + ", " + to_string(c.why));
}

/// An endpoint with memory.
class side {
 public:
  side(const rdma::device_context& d, cw::device_ref device)
      : stream_(device),
        memory_(device, all_bytes),
        region_(d.register_memory(memory_.data(), all_bytes, rdma::access::all)),
        ep_(d.make_endpoint()) {}

  [[nodiscard]] rdma::endpoint_address address() const { return ep_.address(); }
  [[nodiscard]] dev::rdma::region region() const { return region_.device(); }
  void connect(const rdma::endpoint_address& peer) { ep_.connect(peer); }

  // ---- the side that asks

  void prepare() {
    std::vector<unsigned char> m(all_bytes);
    std::snprintf(reinterpret_cast<char*>(m.data()) + text_at, text_bytes, "hello by RDMA");
    for (std::size_t i = 0; i < data_bytes; ++i) m[data_at + i] = data_byte(i);
    memory_.write(m);
  }
  void run(const dev::rdma::region& theirs) {
    cw::buffer<outcomes> out(memory_.device(), 1);
    cw::launch(stream_, {}, ask{}, ep_.device(), region(), theirs, out.data());
    stream_.sync();
    const outcomes o = out.read()[0];
    check(o.send, "send");
    check(o.write, "write");
    check(o.read, "read");
    check(o.add, "fetch_add");
    const auto m = memory_.read();
    for (std::size_t i = 0; i < data_bytes; ++i) {
      check(m[copy_at + i] == data_byte(i), "read: a byte is not what was written");
    }
    check(word(m) == counter_before, "fetch_add: the value before was another");
    std::printf("send, write, read, fetch_add: done; read %u bytes back, the counter was %llu\n",
                data_bytes, static_cast<unsigned long long>(word(m)));
  }

  // ---- the side that is asked

  void expect() {
    std::vector<unsigned char> m(all_bytes);
    m[counter_at] = static_cast<unsigned char>(counter_before);
    memory_.write(m);
    cw::buffer<cw::status> out(memory_.device(), 1);
    cw::launch(stream_, {}, expect_message{}, ep_.device(), region(), out.data());
    stream_.sync();
    check(out.read()[0] == cw::status::ok, "a receive could not be posted");
  }
  void verify() {
    cw::buffer<dev::rdma::completion> out(memory_.device(), 1);
    cw::launch(stream_, {}, take_message{}, ep_.device(), out.data());
    stream_.sync();
    const dev::rdma::completion c = out.read()[0];
    check(c, "receive");
    check(c.bytes == text_bytes, "receive: another length");
    const auto m = memory_.read();
    for (std::size_t i = 0; i < data_bytes; ++i) {
      check(m[data_at + i] == data_byte(i), "write: a byte is not what was sent");
    }
    check(word(m) == counter_before + added, "fetch_add: the counter is another");
    std::printf("received \"%s\"; %u bytes written here are right, the counter is %llu\n",
                reinterpret_cast<const char*>(m.data()) + text_at, data_bytes,
                static_cast<unsigned long long>(word(m)));
  }

 private:
  static std::uint64_t word(const std::vector<unsigned char>& m) {
    std::uint64_t w = 0;
    for (std::size_t i = 0; i < sizeof(w); ++i) {
      w |= static_cast<std::uint64_t>(m[counter_at + i]) << (8 * i);
    }
    return w;
  }

  cw::stream stream_;
  cw::buffer<unsigned char> memory_;
  rdma::memory_region region_;
  rdma::endpoint ep_;
};

}  // namespace rdma_ops
