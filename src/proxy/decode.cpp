#include "decode.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>

namespace crosswarp::proxy_impl {

using device::proxy_call;
using device::proxy_command;
using device::proxy_op;
using device::signal_op;

namespace {

std::uint64_t load(const std::uint64_t& word, std::memory_order order) noexcept {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(order);
}

}  // namespace

std::optional<proxy_command> read_command(const device::proxy_entry& entry,
                                          std::uint32_t tag) noexcept {
  std::uint32_t parts[16] = {};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    // The first pairs with proxy_queue::write(): what the kernel wrote before is there to be put.
    const std::uint64_t word =
        load(entry.words[i], i == 0 ? std::memory_order_acquire : std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(word >> 32U) != tag) return std::nullopt;
    parts[i] = static_cast<std::uint32_t>(word);
  }
  proxy_command c;
  std::memcpy(&c, parts, sizeof(c));
  return c;
}

namespace {

class checker {
 public:
  checker(const proxy_command& c, const limits_of_world& w) noexcept : c_(c), w_(w) {}

  [[nodiscard]] bool is_rank(int pe) const noexcept { return pe >= 0 && pe < w_.size; }
  [[nodiscard]] bool is_reached(int pe) const noexcept {
    return (*w_.reached)[static_cast<std::size_t>(pe)];
  }

  /// `bytes` at `offset` of a region lie inside it on rank `pe`.
  [[nodiscard]] bool inside(int pe, std::uint16_t region, std::uint64_t offset,
                            std::uint64_t bytes) const noexcept {
    if (region >= w_.region_bytes->size()) return false;
    const auto& sizes = (*w_.region_bytes)[region];
    if (sizes.empty()) return false;
    const std::uint64_t size = sizes[static_cast<std::size_t>(pe)];
    return offset <= size && bytes <= size - offset;
  }

  [[nodiscard]] bool word_inside(std::uint16_t region, std::uint64_t offset,
                                 std::uint64_t width) const noexcept {
    return offset % width == 0 && inside(c_.pe, region, offset, width);
  }

  /// What is wrong with `bytes` at a multiple of `alignment`; empty when nothing is.
  [[nodiscard]] std::string fault(std::uint16_t region, std::uint64_t offset, std::uint64_t bytes,
                                  std::uint64_t alignment) const {
    char at[24];
    std::snprintf(at, sizeof(at), "offset 0x%llx", static_cast<unsigned long long>(offset));
    if (offset % alignment != 0) {
      return std::string(at) + " is no multiple of " + std::to_string(alignment);
    }
    if (inside(c_.pe, region, offset, bytes)) return "";
    const std::string all = region == 0 ? "the heap" : "registration " + std::to_string(region);
    if (region >= w_.region_bytes->size() || (*w_.region_bytes)[region].empty()) {
      return all + " is not there";
    }
    return std::string(at) + " + " + std::to_string(bytes) + " bytes is outside of " + all +
           " of " + std::to_string((*w_.region_bytes)[region][static_cast<std::size_t>(c_.pe)]) +
           " bytes";
  }

  [[nodiscard]] bool good_signal() const noexcept {
    switch (static_cast<signal_op>(c_.what)) {
      case signal_op::none:
        return true;
      case signal_op::set:
      case signal_op::add:
        return word_inside(c_.signal_region, c_.a, 8);
    }
    return false;
  }

  /// Blocks do not overlap, on either side, and the first and the last lie inside at the target:
  /// so do those between, and there is an end to them.
  [[nodiscard]] bool good_strides() const noexcept {
    if (c_.c == 0 || c_.bytes == 0) return true;
    constexpr auto far = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (c_.bytes > far || c_.c > far || c_.remote > far) return false;
    const auto block = static_cast<std::int64_t>(c_.bytes);
    const auto apart = [&](std::uint64_t stride) {
      const auto s = static_cast<std::int64_t>(stride);
      return s >= block || s <= -block;
    };
    if (c_.c > 1 && (!apart(c_.a) || !apart(c_.b))) return false;
    const auto steps = static_cast<std::int64_t>(c_.c - 1);
    std::int64_t reach = 0;
    std::int64_t last = 0;
    return !__builtin_mul_overflow(steps, static_cast<std::int64_t>(c_.b), &reach) &&
           !__builtin_mul_overflow(steps, static_cast<std::int64_t>(c_.a), &reach) &&
           !__builtin_add_overflow(static_cast<std::int64_t>(c_.remote), reach, &last) &&
           last >= 0 && inside(c_.pe, c_.region, c_.remote, c_.bytes) &&
           inside(c_.pe, c_.region, static_cast<std::uint64_t>(last), c_.bytes);
  }

  /// Both places of a collective lie inside on this and every other rank.
  [[nodiscard]] bool good_collective(std::uint64_t bytes) const noexcept {
    for (int pe = 0; pe < w_.size; ++pe) {
      if (!inside(pe, c_.region, c_.remote, bytes)) return false;
      if (!inside(pe, c_.signal_region, c_.c, bytes)) return false;
    }
    return true;
  }

  /// Bits are those of integers.
  [[nodiscard]] bool good_reduction() const noexcept {
    const auto type = static_cast<element>(c_.width);
    if (c_.what > static_cast<std::uint8_t>(reduction::bit_xor)) return false;
    const bool bits = c_.what >= static_cast<std::uint8_t>(reduction::bit_and);
    return !bits || (type != element::f32 && type != element::f64);
  }

  [[nodiscard]] bool good() const noexcept {
    switch (c_.op) {
      case proxy_op::put:
        return inside(c_.pe, c_.region, c_.remote, c_.bytes) && good_signal();
      case proxy_op::put_inline:
        return c_.width <= 16 && inside(c_.pe, c_.region, c_.remote, c_.width) && good_signal();
      case proxy_op::get:
        return inside(c_.pe, c_.region, c_.remote, c_.bytes);
      case proxy_op::put_strided:
      case proxy_op::get_strided:
        return good_strides();
      case proxy_op::atomic:
        return c_.what <= static_cast<std::uint8_t>(amo::compare_swap) &&
               (c_.width == 4 || c_.width == 8) && word_inside(c_.region, c_.remote, c_.width);
      case proxy_op::broadcast:
        return good_collective(c_.bytes);
      case proxy_op::reduce: {
        const std::size_t each = size_of(static_cast<element>(c_.width));
        if (each == 0 || !good_reduction()) return false;
        return c_.bytes <= std::numeric_limits<std::uint64_t>::max() / each &&
               good_collective(c_.bytes * each);
      }
      case proxy_op::fence:
      case proxy_op::quiet:
      case proxy_op::barrier:
        return true;
      case proxy_op::none:
        return false;
    }
    return false;
  }

 private:
  const proxy_command& c_;
  const limits_of_world& w_;
};

}  // namespace

bool names_rank(proxy_op op) noexcept {
  switch (op) {
    case proxy_op::fence:
    case proxy_op::quiet:
    case proxy_op::barrier:
    case proxy_op::reduce:
      return false;
    default:
      return true;
  }
}

bool is_collective(proxy_op op) noexcept {
  return op == proxy_op::barrier || op == proxy_op::broadcast || op == proxy_op::reduce;
}

status validate(const proxy_command& c, const limits_of_world& w) noexcept {
  const checker check(c, w);
  if (names_rank(c.op) && !check.is_rank(c.pe)) return status::invalid;
  if (!check.good()) return status::invalid;
  if (!names_rank(c.op) || c.op == proxy_op::broadcast) return status::ok;
  return check.is_reached(c.pe) ? status::ok : status::unreachable;
}

std::string what_is_wrong(const proxy_command& c, const limits_of_world& w) {
  const checker check(c, w);
  if (names_rank(c.op) && !check.is_rank(c.pe)) return "there is no such rank";
  switch (c.op) {
    case proxy_op::put:
    case proxy_op::put_inline: {
      std::string data = check.fault(c.region, c.remote, bytes_of(c), 1);
      if (!data.empty() || call_of(c) != proxy_call::put_signal) return data;
      const std::string signal = check.fault(c.signal_region, c.a, 8, 8);
      return signal.empty() ? "" : "signal: " + signal;
    }
    case proxy_op::get:
      return check.fault(c.region, c.remote, c.bytes, 1);
    case proxy_op::atomic:
      if (c.width != 4 && c.width != 8) return "words have 4 or 8 bytes";
      return check.fault(c.region, c.remote, c.width, c.width);
    default:
      return "";
  }
}

const char* name_of(proxy_call call) noexcept {
  constexpr const char* names[] = {
      "invalid",     "put",         "put_signal",   "put_value",   "get",
      "put_strided", "get_strided", "atomic fetch", "atomic set",  "atomic add",
      "atomic and",  "atomic or",   "atomic xor",   "atomic swap", "atomic compare_swap",
      "fence",       "quiet",       "barrier",      "broadcast",   "reduce",
      "collect",     "alltoall",    "scan"};
  static_assert(std::size(names) == device::proxy_calls);
  return names[static_cast<std::size_t>(call)];
}

}  // namespace crosswarp::proxy_impl
