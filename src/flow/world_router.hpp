// A router whose ends are on several ranks, as one of these ranks sees it.
//
// Its rules are kept by one rank, its home: who sends tells the home, who frees a buffer tells the
// home, and the home tells a sender what to copy into which buffer. Bytes go from the sender to the
// receiver, and never through the home. docs/design/flow.md has the states.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "flow/router_base.hpp"
#include "flow/station.hpp"

namespace crosswarp::flow::impl {

class world_router final : public router_base, public addressee {
 public:
  /// Throws error(invalid_argument), error(not_supported).
  static std::shared_ptr<world_router> make(std::shared_ptr<station> at,
                                            std::shared_ptr<waits> limits, int home, const fan& f,
                                            policy p);

  int add_input(const place& at, int rank) override;
  /// Collective.
  int add_output(const receiver& r) override;
  void shutdown(int input) override;
  future<pending_segment> receive(int output) override;
  void release(int output, const pending_segment& s, const completion& used) override;
  [[nodiscard]] std::uint64_t received_bytes(int output) const override;
  [[nodiscard]] std::string explain_way(int input, int output) const override;

  [[nodiscard]] bool is_complete() const override { return matcher_.is_complete(); }
  void handle(const message& m) override;
  void finish() override;

 private:
  /// From an input of this rank to an output.
  struct lane_out {
    explicit lane_out(device_ref d) : failed(d, 1, memory_kind::pinned), by(d) {}
    buffer<status> failed;  // ok, as long as all puts were
    stream by;              // ends before what it writes to
  };
  struct output {
    receiver of;
    std::size_t stride;
    std::byte* mine;    // this rank's copy of the buffers; at senders an image
    std::byte* theirs;  // the receiver's; null: behind the proxy
    device::remote_address remote;
    std::map<int, lane_out> lanes = {};  // by input
    // ---- at the receiver
    std::optional<buffer<std::byte>> landing = {};  // where it is the host, and the heap is a GPU's
    std::optional<stream> land = {};
    std::optional<inbox> in = {};
    std::map<std::uint64_t, message> early = {};  // arrived, but something before it has not
    std::uint64_t next = 0;                       // packet to be delivered
    std::optional<std::uint64_t> end = {};        // so many packets, and no more
    // ---- at home
    std::uint64_t given = 0;
    bool told = false;  // the receiver, of the end
  };

  world_router(std::shared_ptr<station> at, std::shared_ptr<waits> limits, int home, const fan& f,
               policy p);
  [[nodiscard]] int here() const { return station_->of().rank(); }
  [[nodiscard]] int rank_of(int input) const { return inputs_[static_cast<std::size_t>(input)]; }
  [[nodiscard]] output& out(int index) { return *outputs_[static_cast<std::size_t>(index)]; }
  void make_lane(int in, int out);
  [[nodiscard]] message letter(message::kind what) const;
  [[nodiscard]] message send_letter(const send_order& o, const route& way) const;

  [[nodiscard]] std::mutex& mutex() const noexcept override { return station_->mutex(); }
  // ---- with the lock held
  void check_running(const char* call) const override { station_->check_running(call); }
  void start(const send_order& o, const route& way) override;
  void take_back(int input, std::uint64_t id) override;
  // ---- at home
  void match();
  void tell_ends();
  // ---- at a sender
  void copy(const message& give);
  std::shared_ptr<event> queue_copy_of(const message& give, const sending& s);
  // ---- at a receiver
  void deliver(output& to);
  void give_back_unused(const message& arrived);
  [[nodiscard]] static bool has_ended(const output& o) { return o.end && o.next == *o.end; }

  const std::shared_ptr<station> station_;
  const int home_;
  std::uint32_t number_ = 0;
  std::vector<int> inputs_;  // their ranks
  std::vector<std::unique_ptr<output>> outputs_;
};

}  // namespace crosswarp::flow::impl
