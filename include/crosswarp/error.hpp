// What the library throws.
#pragma once

#include <stdexcept>
#include <string>

namespace crosswarp {

enum class errc {
  invalid_argument,  ///< the caller asked for something that makes no sense
  not_supported,     ///< this build or this machine cannot do it
  out_of_memory,     ///< a heap or a device is exhausted
  asymmetric,        ///< ranks made different collective calls
  does_not_fit,      ///< a resident launch needs more than the device holds at once
  timeout,           ///< the deadline passed
  peer_lost,         ///< a rank died
  aborted,           ///< a rank called abort, or its function threw
  refused,           ///< a connection was not admitted to the job
  device_fault,      ///< the device reported an error
  system,            ///< the operating system reported an error
};

const char* to_string(errc code) noexcept;

/// Code, what was called, which peer, and why; what() has them all in one sentence.
class error : public std::runtime_error {
 public:
  error(errc code, const std::string& call, const std::string& why, int peer = -1);

  [[nodiscard]] errc code() const noexcept { return code_; }
  /// The rank to blame, or -1.
  [[nodiscard]] int peer() const noexcept { return peer_; }

  /// With the reason of `errno`-style code `sys`.
  static error from_errno(int sys, const std::string& call, const std::string& context = {});

 private:
  errc code_;
  int peer_;
};

}  // namespace crosswarp
