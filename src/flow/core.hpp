// A dataflow graph: what a context has made.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "flow/drawing.hpp"
#include "flow/router_base.hpp"

namespace crosswarp::flow::impl {

/// The ends of a link: an input of the router that it leads to, an output of that it comes from. A
/// link without a router has both ends of one of its own.
class port_pair {
 public:
  struct port {
    std::shared_ptr<router_base> of;  // null: this end is the router's
    int index = -1;
    int rank = 0;  // who may use it
  };
  port_pair(port sender, port receiver, std::size_t packet_bytes, int buffers, const place& source,
            device_ref near, int here);

  const port sender;
  const port receiver;
  const std::size_t packet_bytes;
  const int here;  // this rank

  future<completion> send(const segment& s, const completion& ready);
  std::span<std::byte> send_buffer(stream& s);
  [[nodiscard]] std::uint64_t bytes_moved() const;

 private:
  struct own_buffer {
    bool out = false;                      // given to the user, not sent yet
    std::vector<future<completion>> sent;  // what was sent of it since
  };
  /// Those in which the segment lies.
  [[nodiscard]] std::span<own_buffer> find(const segment& s);

  const place source_;
  const device_ref near_;
  std::mutex mutex_;  // of what follows
  std::vector<own_buffer> own_;
  std::size_t next_ = 0;
  std::shared_ptr<const buffer<std::byte>> memory_;  // made when first asked for
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
  /// `spots`: of the hosts, one for each rank.
  core(std::vector<device_ref> devices, std::vector<machine_spot> spots,
       std::shared_ptr<waits> limits);
  virtual ~core() = default;
  core(const core&) = delete;
  core& operator=(const core&) = delete;

  [[nodiscard]] const std::vector<device_ref>& devices() const noexcept { return devices_; }
  [[nodiscard]] const std::vector<machine_spot>& spots() const noexcept { return spots_; }
  [[nodiscard]] const std::shared_ptr<waits>& limits() const noexcept { return limits_; }
  std::pair<endpoint, std::shared_ptr<router_base>> router(int inputs, int outputs, policy p);
  std::shared_ptr<port_pair> link(endpoint from, endpoint to, std::size_t packet_bytes, int buffers,
                                  const link_options& options);
  /// Who hears of it, hears when nothing of what it sent is given out any more.
  void abort(const std::string& why);
  /// As it is, with what went over each link so far.
  [[nodiscard]] picture drawn() const;

 protected:
  // ---- what ranks of a world do in their own way

  /// Before each thing is made: `what` it is, and how many there are.
  virtual void agree(std::size_t /*n*/, const std::string& /*what*/) {}
  [[nodiscard]] virtual int here() const { return 0; }
  [[nodiscard]] int hosts() const { return static_cast<int>(spots_.size()); }
  /// `near`: the rank of an end that it has; -1: they are not known yet.
  virtual std::shared_ptr<router_base> make_router(const fan& f, policy p, int near);
  /// Before the waits of an abort end.
  virtual void stop_routers();

 private:
  struct spot {
    place at;
    int rank;
  };
  [[nodiscard]] spot spot_of(endpoint e) const;
  std::shared_ptr<port_pair> make_link(endpoint from, endpoint to, std::size_t packet_bytes,
                                       int buffers, transport how);

  const std::vector<device_ref> devices_;
  const std::vector<machine_spot> spots_;
  const std::shared_ptr<waits> limits_;
  mutable std::mutex mutex_;
  std::vector<edge> edges_;
  std::vector<std::shared_ptr<router_base>> routers_;
};

}  // namespace crosswarp::flow::impl
