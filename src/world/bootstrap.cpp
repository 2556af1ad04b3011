#include "bootstrap.hpp"

#include <sys/random.h>

#include <cerrno>

namespace crosswarp::world_impl {

secret_key make_secret() {
  secret_key s{};
  std::size_t have = 0;
  while (have < s.size()) {
    const ssize_t n = getrandom(s.data() + have, s.size() - have, 0);
    if (n < 0 && errno != EINTR) throw error::from_errno(errno, "getrandom");
    if (n > 0) have += static_cast<std::size_t>(n);
  }
  return s;
}

std::string to_hex(const secret_key& s) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : s) {
    text += digits[std::to_integer<unsigned>(b) >> 4U];
    text += digits[std::to_integer<unsigned>(b) & 15U];
  }
  return text;
}

secret_key secret_from_hex(const std::string& text) {
  constexpr std::string_view digits = "0123456789abcdef";
  secret_key s{};
  bool good = text.size() == 2 * s.size();
  for (std::size_t i = 0; good && i < text.size(); ++i) {
    const std::size_t d = digits.find(text[i]);
    good = d != std::string_view::npos;
    if (good) s[i / 2] = s[i / 2] << 4U | std::byte(d);
  }
  if (!good) {
    throw error(errc::invalid_argument, "CROSSWARP_SECRET", "not 32 lower-case hex digits");
  }
  return s;
}

error to_error(const fault& f, const std::string& call) {
  const errc code = f.what == status::timeout     ? errc::timeout
                    : f.what == status::peer_lost ? errc::peer_lost
                                                  : errc::aborted;
  return {code, call, f.why, f.rank};
}

std::string reason_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  } catch (...) {
    return "an unknown exception";
  }
}

bool break_world(bootstrap& b, const std::string& why) noexcept {
  try {
    return b.fail({status::aborted, b.rank(), why});
  } catch (...) {
    return false;  // Out of memory for the message: the connection's end will tell the others.
  }
}

}  // namespace crosswarp::world_impl
