// Data from one endpoint to another by RDMA that a kernel posts: every step by itself.
//
//   build/release/examples/10_interchange
//   build/release/examples/10_interchange cuda           or CROSSWARP_DEVICE=cuda
#include <cstdio>

#include "crosswarp/buffer.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/options.hpp"
#include "crosswarp/rdma.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
namespace rdma = crosswarp::rdma;

namespace {

constexpr std::uint32_t bytes = 1024;
constexpr unsigned char value = 42;

/// Writes the buffer to the other side and waits until it is there, in the steps that an adapter
/// wants: an entry, the doorbell record, the doorbell; then a completion, and that it was read.
struct send_buffer {
  CW_FN void operator()(const dev::kernel_context& ctx, const dev::rdma::endpoint& ep,
                        dev::rdma::region mine, dev::rdma::region theirs,
                        dev::rdma::completion* out) const {
    const auto me = ctx.thread();
    dev::rdma::completion c;
    c.outcome = ep.post_write(me, mine.local(), theirs.remote(), bytes).outcome;
    if (c.outcome == cw::status::ok) c.outcome = ep.update_send_dbr_record(me);
    if (c.outcome == cw::status::ok) c.outcome = ep.ring_doorbell(me);
    if (c.outcome == cw::status::ok) {
      const cw::status waited =
          dev::poll_until([&] { return ep.poll_cq(me, c); }, dev::wait_limits{});
      if (waited != cw::status::ok) c.outcome = waited;
      ep.update_cq_dbr_record(me);
    }
    *out = c;
  }
};

struct fill {
  CW_FN void operator()(const dev::kernel_context& ctx, unsigned char* to) const {
    for (int i = ctx.grid().rank(); i < static_cast<int>(bytes); i += ctx.grid().size()) {
      to[i] = value;
    }
  }
};

void interchange(cw::device_ref device) {
  std::printf("=== Simple GPU Data Interchange Example ===\n");
  std::printf("Transferring %u bytes with value %d\n\n", bytes, value);

  std::printf("Step 1: Initializing RDMA context...\n");
  const rdma::context all(rdma::backend::soft);
  const rdma::device_list devices = all.devices();
  std::printf("  Found %zu RDMA device(s)\n", devices.size());

  std::printf("Step 2: Getting RDMA devices...\n");
  const auto ports = rdma::active_ports(devices);
  std::printf("  Found %zu active device port(s)\n", ports.size());
  if (ports.empty()) throw cw::error(cw::errc::not_supported, "interchange", "no port is up");

  std::printf("Step 3: Creating device contexts...\n");
  const rdma::device_context sender = ports.at(0).on.open(device);
  const rdma::device_context receiver = ports.at(0).on.open(device);
  std::printf("  Device contexts created\n");

  std::printf("Step 4: Creating RDMA endpoints...\n");
  rdma::endpoint from = sender.make_endpoint({.port = ports.at(0).port});
  rdma::endpoint to = receiver.make_endpoint({.port = ports.at(0).port});
  std::printf("  Endpoints created (QPN: send=%u, recv=%u)\n", from.qpn(), to.qpn());

  std::printf("Step 5: Connecting endpoints...\n");
  from.connect(to.address());
  to.connect(from.address());
  std::printf("  Endpoints connected\n");

  std::printf("Step 6: Allocating and registering GPU buffers...\n");
  cw::buffer<unsigned char> source(device, bytes);
  cw::buffer<unsigned char> target(device, bytes);
  const auto mine = sender.register_memory(source.data(), bytes, rdma::access::none);
  const auto theirs = receiver.register_memory(
      target.data(), bytes, rdma::access::local_write | rdma::access::remote_write);
  std::printf("  Buffers allocated and registered\n");

  std::printf("Step 7: Launching GPU kernel for data interchange...\n");
  cw::buffer<dev::rdma::completion> out(device, 1);
  cw::stream s(device);
  cw::launch(s, {.threads = 64}, fill{}, source.data());
  cw::launch(s, {}, send_buffer{}, from.device(), mine.device(), theirs.device(), out.data());
  s.sync();
  const dev::rdma::completion c = out.read()[0];
  if (c.outcome != cw::status::ok) {
    throw cw::error(cw::errc::device_fault, "interchange",
                    std::string(cw::to_string(c.outcome)) + ", " + to_string(c.why));
  }
  for (const unsigned char got : target.read()) {
    if (got != value) {
      throw cw::error(cw::errc::device_fault, "interchange",
                      "a byte is " + std::to_string(got) + " instead of 42");
    }
  }
  std::printf("Success! All %u bytes verified with value %d\n", bytes, value);
  std::printf("  Kernel execution completed\n");
  std::printf("Step 8: Cleaning up resources...\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto chosen = argc > 1 ? argv[1] : cw::options::read("CROSSWARP_DEVICE").value_or("cpu");
    interchange(cw::device_ref::parse(chosen));
    std::printf("  Resources cleaned up\n\n=== Example completed successfully! ===\n");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
