// Frames between processes: how a NIC's requests leave its process, whatever the network is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/module.hpp"

namespace crosswarp::verbs {

/// Of all that a carrier is given and gives.
inline constexpr std::size_t most_frame_bytes = std::size_t{64} * 1024 + 256;

/// Belongs to a NIC's thread, but for what is said otherwise; nothing in it waits. Frames of a line
/// come out whole and in the order in which they went in, until the line is lost.
class carrier {
 public:
  /// A connection; 0: none.
  using line = std::uint64_t;

  /// Who uses it.
  class user {
   public:
    virtual ~user() = default;
    /// False when it makes no sense: then the line is closed and lost.
    virtual bool take(line from, bool opened_here, std::span<const std::byte> frame) = 0;
    /// The other end is gone, or the way there. What was under way may have arrived or not.
    virtual void lost(line which) = 0;
  };

  virtual ~carrier() = default;
  /// Where others find it, for addresses. Any thread.
  [[nodiscard]] virtual const std::vector<std::byte>& route() const noexcept = 0;
  /// Why nothing leads to who has that route; empty: something may. May wait. Any other thread.
  [[nodiscard]] virtual std::string why_not(std::span<const std::byte> route) const = 0;
  /// A line to who has that route; 0: there is nobody now.
  virtual line open(std::span<const std::byte> route) = 0;
  virtual void send(line to, std::vector<std::byte> frame) = 0;
  /// Gives to `u` what came; true when something moved.
  virtual bool progress(user& u) = 0;
  /// See wire.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
  virtual bool arm() { return true; }
};

/// Between processes of one machine. Throws error(system).
std::unique_ptr<carrier> make_socket_carrier();

/// What the module of UCX exports under the name `crosswarp_carrier`.
struct carrier_module : module_head {
  std::unique_ptr<carrier> (*make)();
};
}  // namespace crosswarp::verbs
