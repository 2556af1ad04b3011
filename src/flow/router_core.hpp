// A router of one process at work: copies what is matched, on streams.
//
// A buffer is in one of two hands: posted (the matcher's) and held (by the receiver, from the
// moment a copy into it is queued until release() posts it again).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "flow/router_base.hpp"

namespace crosswarp::flow::impl {

class router_core final : public router_base {
 public:
  /// Throws error(invalid_argument).
  router_core(std::shared_ptr<waits> limits, device_ref near, const fan& f, policy p)
      : router_base(std::move(limits), near, f, std::move(p)) {}

  int add_input(const place& at, int rank) override;
  int add_output(const receiver& r) override;
  void shutdown(int input) override;
  future<pending_segment> receive(int output) override;
  void release(int output, const pending_segment& s, const completion& used) override;
  void stop() override;
  [[nodiscard]] std::uint64_t received_bytes(int output) const override;
  [[nodiscard]] std::string explain_way(int input, int output) const override;

 private:
  struct output {
    output(const receiver& made_of, device_ref near);
    [[nodiscard]] bool lends() const noexcept { return of.how == transport::lent; }
    receiver of;
    std::optional<buffer<std::byte>> memory;  // none where packets are lent
    inbox in;
    // ---- by slot
    std::vector<completion> free;                // when it may be overwritten
    std::vector<std::uint64_t> lent_of;          // whose memory it is: a send
    std::map<int, std::unique_ptr<lane>> lanes;  // by input
  };

  [[nodiscard]] output& at(int index) const { return *outputs_[static_cast<std::size_t>(index)]; }
  void make_lane(int in, int out);
  [[nodiscard]] std::mutex& mutex() const noexcept override { return mutex_; }
  // ---- with the lock held
  void check_running(const char* /*call*/) const override {}
  void start(const send_order& o, const route& way) override;
  void take_back(int input, std::uint64_t id) override;
  void check_way(int input, const segment& s, const route& way) const override;
  void match();
  void give(const grant& g);
  void return_lent(std::uint64_t id, const completion& used);
  void end_receives();

  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::vector<place> inputs_;
  std::vector<std::unique_ptr<output>> outputs_;
};

}  // namespace crosswarp::flow::impl
