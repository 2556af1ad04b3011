// The way of bytes from one endpoint's memory to another's: streams, and what they copy with.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "crosswarp/flow.hpp"

namespace crosswarp::flow::impl {

/// Where an endpoint's memory is: a device's, or, without one, the host's.
using place = std::optional<device_ref>;

struct way_chosen {
  transport how;
  std::string why;
};
/// `reaches`: whether the receiver's device gets at the sender's memory; asked where it matters.
/// Throws error(invalid_argument) for what cannot be.
way_chosen choose_way(const place& from, const place& to, transport asked,
                      const std::function<bool()>& reaches);

/// Copies of one lane are made in their order. Called by one thread at a time.
class lane {
 public:
  /// `packet_bytes`: the largest copy. `near`: a device whose streams serve where both ends are
  /// the host.
  lane(const place& from, const place& to, device_ref near, transport asked,
       std::size_t packet_bytes);

  /// Queues a copy behind both, and returns what passes when it is done. The host waits for
  /// neither.
  std::shared_ptr<event> copy(void* dst, const void* src, std::size_t bytes,
                              const completion& src_ready, const completion& dst_ready);
  /// Nothing is copied, and it has no streams.
  [[nodiscard]] bool lends() const noexcept { return how_ == transport::lent; }
  /// How, and why so.
  [[nodiscard]] std::string explain() const;

 private:
  void push(void* staged, const void* src, std::size_t bytes, const completion& src_ready);

  transport how_;
  std::string why_;
  // ---- indirect
  struct stage {
    std::size_t at = 0;
    std::shared_ptr<event> pulled;  // null before the first use
  };
  std::optional<buffer<std::byte>> host_;
  std::deque<stage> stages_;  // the next to use first
  // ---- last: streams end before what they copy to and from
  std::optional<stream> pull_;  // at the receiver; where that is the host, at the sender
  std::optional<stream> push_;  // at the sender; indirect
};

}  // namespace crosswarp::flow::impl
