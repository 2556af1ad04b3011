// A dataflow graph: what contexts of the ranks of one process share.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "flow/drawing.hpp"
#include "flow/router_core.hpp"

namespace crosswarp::flow::impl {

/// The ends of a link: an input of the router that it leads to, an output of that it comes from. A
/// link without a router has both ends of one of its own.
class port_pair {
 public:
  struct port {
    std::shared_ptr<router_core> of;  // null: this end is not ours to use
    int index = -1;
  };
  port_pair(port sender, port receiver, std::size_t packet_bytes, int buffers, const place& source,
            device_ref near);

  const port sender;
  const port receiver;
  const std::size_t packet_bytes;

  future<completion> send(const segment& s, const completion& ready);
  std::span<std::byte> send_buffer(stream& s);
  [[nodiscard]] std::uint64_t bytes_moved() const;

 private:
  struct own_buffer {
    bool out = false;                        // given to the user, not sent yet
    std::optional<future<completion>> sent;  // its last send
  };
  [[nodiscard]] own_buffer* find(const void* p);

  const place source_;
  const device_ref near_;
  std::mutex mutex_;  // of what follows
  std::vector<own_buffer> own_;
  std::size_t next_ = 0;
  std::optional<buffer<std::byte>> memory_;  // made when first asked for
};

/// A link as it is drawn.
struct edge {
  endpoint from;
  endpoint to;
  std::string name;
  std::shared_ptr<port_pair> ports;
};

class core {
 public:
  core(std::vector<device_ref> devices, std::shared_ptr<waits> limits);

  [[nodiscard]] const std::vector<device_ref>& devices() const noexcept { return devices_; }
  [[nodiscard]] waits& limits() const noexcept { return *limits_; }
  /// The n-th thing made: by the first who comes, for all who share the graph.
  /// Throws error(asymmetric) when they make different things.
  std::pair<endpoint, std::shared_ptr<router_core>> router(std::size_t n, int inputs, int outputs,
                                                           policy p);
  std::shared_ptr<port_pair> link(std::size_t n, endpoint from, endpoint to,
                                  std::size_t packet_bytes, int buffers,
                                  const link_options& options);
  /// As it is, with what went over each link so far.
  [[nodiscard]] picture drawn() const;

 private:
  struct made_router {
    endpoint at;
    std::shared_ptr<router_core> core;
  };
  using made = std::variant<made_router, edge>;
  /// Null when it is still to be made; compares it otherwise.
  [[nodiscard]] const made* find(std::size_t n, const std::string& what) const;
  [[nodiscard]] place place_of(endpoint e, const char* call) const;
  [[nodiscard]] std::shared_ptr<port_pair> make_link(endpoint from, endpoint to,
                                                     std::size_t packet_bytes, int buffers,
                                                     transport how) const;

  const std::vector<device_ref> devices_;
  const std::shared_ptr<waits> limits_;
  mutable std::mutex mutex_;
  std::vector<made> made_;
  std::vector<std::string> what_;  // was asked for, by number
  std::vector<std::shared_ptr<router_core>> routers_;
};

}  // namespace crosswarp::flow::impl
