// The wire of a NIC that reaches other processes: requests leave as frames on lines that this end
// opened, answers go back on the line that a request came on.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transports/verbs/carrier.hpp"
#include "transports/verbs/frames.hpp"
#include "transports/verbs/soft_nic.hpp"

namespace crosswarp::verbs {

class far_wire final : public wire, private carrier::user {
 public:
  /// `near`: for NICs of this process; null: they are reached as all others are.
  far_wire(soft_nic& self, const station& own, carrier& by, std::unique_ptr<wire> near);

  void learn(const endpoint_address& peer) override;
  bool send(const request& r) override;
  [[nodiscard]] std::uint32_t most_bytes(const station& to) const noexcept override;
  bool progress() override;
  [[nodiscard]] int descriptor() const noexcept override { return carrier_.descriptor(); }
  bool arm() override { return (near_ == nullptr || near_->arm()) && carrier_.arm(); }

 private:
  /// The way to another NIC.
  struct way {
    std::vector<std::byte> route;
    carrier::line line = 0;
    std::size_t open = 0;  ///< requests without an answer
  };

  bool take(carrier::line from, bool opened_here, std::span<const std::byte> bytes) override;
  void lost(carrier::line which) override;
  bool take_request(carrier::line from, frame& f);
  bool take_answer(carrier::line from, frame& f);
  [[nodiscard]] bool is_near(const station& s) const noexcept {
    return near_ != nullptr && s.fabric == own_.fabric;
  }

  soft_nic& self_;
  const station own_;
  carrier& carrier_;
  std::unique_ptr<wire> near_;
  std::map<station, way> ways_;                ///< by NIC
  std::map<carrier::line, station> opened_;    ///< whereto
  std::map<carrier::line, station> accepted_;  ///< who said hello on it
};

}  // namespace crosswarp::verbs
