// Commands as they come from a kernel: nothing in them is believed.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "engine.hpp"

namespace crosswarp::proxy_impl {

/// What a command may refer to.
struct limits_of_world {
  int rank = 0;
  int size = 1;
  /// By rank: the proxy reaches it.
  const std::vector<bool>* reached = nullptr;
  /// By region: bytes on each rank; empty where there is none.
  const std::vector<std::vector<std::size_t>>* region_bytes = nullptr;
};

/// The command in an entry when all of its words belong to lap `tag`; none while some are missing.
/// Words are read as a kernel may still write them.
std::optional<device::proxy_command> read_command(const device::proxy_entry& entry,
                                                  std::uint32_t tag) noexcept;

/// ok when everything that the command names exists; else the status for its issuer.
/// Addresses in this process are the business of who uses them.
status validate(const device::proxy_command& c, const limits_of_world& w) noexcept;

/// Why a put, a get or an atomic operation is invalid, for people; empty when it is for another
/// reason than what it names.
std::string what_is_wrong(const device::proxy_command& c, const limits_of_world& w);

/// Whether a command is about one rank, and whether about all.
bool names_rank(device::proxy_op op) noexcept;
bool is_collective(device::proxy_op op) noexcept;

/// For people; "invalid" for what no command may ask.
const char* name_of(device::proxy_call call) noexcept;

}  // namespace crosswarp::proxy_impl
