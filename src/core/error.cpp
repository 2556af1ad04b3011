#include "crosswarp/error.hpp"

#include <system_error>

namespace crosswarp {
namespace {

std::string sentence(errc code, const std::string& call, const std::string& why, int peer) {
  std::string text = call + ": " + to_string(code);
  if (peer >= 0) text += " (rank " + std::to_string(peer) + ")";
  if (!why.empty()) text += ": " + why;
  return text;
}

}  // namespace

const char* to_string(errc code) noexcept {
  switch (code) {
    case errc::invalid_argument:
      return "invalid argument";
    case errc::not_supported:
      return "not supported";
    case errc::out_of_memory:
      return "out of memory";
    case errc::asymmetric:
      return "ranks disagree";
    case errc::does_not_fit:
      return "does not fit";
    case errc::timeout:
      return "timeout";
    case errc::peer_lost:
      return "peer lost";
    case errc::aborted:
      return "aborted";
    case errc::refused:
      return "refused";
    case errc::device_fault:
      return "device fault";
    case errc::system:
      return "system error";
  }
  return "unknown error";
}

error::error(errc code, const std::string& call, const std::string& why, int peer)
    : std::runtime_error(sentence(code, call, why, peer)), code_(code), peer_(peer) {}

error error::from_errno(int sys, const std::string& call, const std::string& context) {
  std::string why = std::generic_category().message(sys);
  if (!context.empty()) why = context + ": " + why;
  return {sys == ENOMEM ? errc::out_of_memory : errc::system, call, why};
}

}  // namespace crosswarp
