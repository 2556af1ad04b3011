#include "fuzz/commands.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "proxy/proxy.hpp"
#include "transports/local/local.hpp"

namespace fuzz {
namespace {

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using cw::status;
using dev::proxy_command;
using dev::proxy_op;

/// What is left of the input; zeros when it is used up.
class reader {
 public:
  explicit reader(std::span<const std::byte> input) : left_(input) {}
  [[nodiscard]] bool empty() const { return left_.empty(); }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof(T), left_.size());
    if (n > 0) std::memcpy(&value, left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }

 private:
  std::span<const std::byte> left_;
};

// ---- the world that commands speak of: three ranks, the last of which is not reached

constexpr int ranks = 3;
constexpr int regions = 2;
constexpr std::size_t sizes[regions][ranks] = {{512, 512, 512}, {96, 200, 64}};

/// All memory that commands can name, with space between the parts. Around it is nothing, for as
/// far as a stride can reach.
class arena {
 public:
  static constexpr std::size_t bytes = 8192;

  arena() {
    void* const all = mmap(nullptr, 2 * around + bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(all) + around;
    if (mprotect(base_, bytes, PROT_READ | PROT_WRITE) != 0) std::abort();
  }

  [[nodiscard]] std::uint64_t start() const { return reinterpret_cast<std::uintptr_t>(base_); }
  [[nodiscard]] std::byte* region(int id, int rank) const {
    return base_ + 1024 * (1 + id * ranks + rank);
  }

  void fill() {
    std::memcpy(base_, original().data(), bytes);
    open_.fill(0);
    for (int id = 0; id < regions; ++id) {
      for (int rank = 0; rank + 1 < ranks; ++rank) {
        open(reinterpret_cast<std::uintptr_t>(region(id, rank)), sizes[id][rank]);
      }
    }
  }
  /// From now on this may change.
  void open(std::uint64_t address, std::size_t count) {
    constexpr auto size = static_cast<std::int64_t>(bytes);
    const auto from = static_cast<std::int64_t>(address - start());
    const auto first = std::clamp<std::int64_t>(from, 0, size);
    const auto last = std::clamp<std::int64_t>(from + static_cast<std::int64_t>(count), 0, size);
    std::fill(open_.begin() + first, open_.begin() + last, std::uint8_t{1});
  }
  /// Where something changed that nobody named.
  [[nodiscard]] std::optional<std::size_t> damage() const {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (base_[i] != original()[i] && open_[i] == 0) return i;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t around = std::size_t{1} << 34U;
  static const std::array<std::byte, bytes>& original() {
    static const auto pattern = [] {
      std::array<std::byte, bytes> a{};
      for (std::size_t i = 0; i < bytes; ++i) a[i] = static_cast<std::byte>(i * 151 + 43);
      return a;
    }();
    return pattern;
  }
  std::byte* base_ = nullptr;
  std::array<std::uint8_t, bytes> open_{};
};

arena& memory() {
  static arena a;
  return a;
}

// ---- commands out of bytes

[[nodiscard]] bool has_strides(const proxy_command& c) {
  return c.op == proxy_op::put_strided || c.op == proxy_op::get_strided;
}

/// A number that is mostly small; now and then one just below zero, or as it came.
std::uint64_t fold(std::uint64_t n, std::uint64_t below) {
  const std::uint64_t small = (n >> 4U) % below;
  return n % 16 == 15 ? n : n % 16 == 14 ? ~small : small;
}

/// Folds the fields to where commands mean something, and to just beyond.
void tame(proxy_command& c) {
  c.op = static_cast<proxy_op>(static_cast<unsigned>(c.op) % 13U);
  c.flags &= 1U;
  constexpr int targets[] = {0, 1, 0, 1, 0, 1, 2, -1, 3, 0, 1, 0, 1, 0, 1, 0};
  c.pe = targets[c.pe & 15];
  c.region = static_cast<std::uint16_t>(fold(c.region, 2));
  c.signal_region = static_cast<std::uint16_t>(fold(c.signal_region, 2));
  c.remote = fold(c.remote, sizes[c.region % regions][1]);
  if (c.op == proxy_op::put || c.op == proxy_op::put_inline) {
    c.what %= 4;
    c.a = fold(c.a, 64) * 8 + (c.b % 8 == 0 ? 4 : 0);
  }
  if (c.op == proxy_op::put_inline) {
    c.width %= 18;
  } else {
    c.bytes = fold(c.bytes, 100);
  }
  if (c.op == proxy_op::atomic) {
    c.what %= 9;
    c.width = (c.width & 1U) != 0 ? 8 : 4;
    c.remote = c.remote % 64 * c.width + (c.b % 8 == 0 ? 2 : 0);
  }
  if (has_strides(c)) {
    c.bytes = fold(c.bytes, 12);
    c.c = fold(c.c, 12);
    c.a = fold(c.a, 49) - 24;
    c.b = fold(c.b, 49) - 24;
  }
}

[[nodiscard]] bool has_address(const proxy_command& c) {
  return c.op == proxy_op::put || c.op == proxy_op::get || has_strides(c) ||
         (c.op == proxy_op::atomic && c.local != 0);
}

/// A kernel's addresses are believed, so they must lead into the arena, to its edges, or nowhere.
void keep_inside(proxy_command& c) {
  if (!has_address(c)) return;
  const bool nowhere = (c.local >> 61U) == 7;
  c.local =
      nowhere ? (c.local & 0xfff0U) + 16 : memory().start() - 64 + c.local % (arena::bytes + 128);
  if (has_strides(c)) {
    c.b = static_cast<std::uint64_t>(static_cast<std::int64_t>(c.b << 40U) >> 40U);
  }
}

/// What a command may write here lies open afterwards.
void open_target(const proxy_command& c) {
  constexpr std::uint64_t most = 512;  // no valid command moves more
  if (c.op == proxy_op::get && c.bytes <= most) memory().open(c.local, c.bytes);
  if (c.op == proxy_op::atomic && c.local != 0) memory().open(c.local, 8);
  if (c.op == proxy_op::get_strided && c.bytes <= most && c.c <= most) {
    for (std::uint64_t i = 0; i < c.c; ++i) memory().open(c.local + i * c.b, c.bytes);
  }
}

using entry_words = std::array<std::uint64_t, 16>;

entry_words words_of(const proxy_command& c, std::uint32_t tag) {
  std::uint32_t parts[16];
  std::memcpy(parts, &c, sizeof(c));
  entry_words words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<std::uint64_t>(tag) << 32U | parts[i];
  }
  return words;
}

// ---- the decoder, against arithmetic that cannot overflow

__extension__ using wide = __int128;

bool lies_inside(int pe, unsigned region, wide offset, wide bytes) {
  return region < regions && offset >= 0 && bytes >= 0 &&
         offset + bytes <= static_cast<wide>(sizes[region][pe]);
}

bool blocks_lie_inside(const proxy_command& c) {
  for (std::uint64_t i = 0; i < c.c && c.bytes > 0; ++i) {
    const wide offset =
        static_cast<wide>(c.remote) + static_cast<wide>(i) * static_cast<std::int64_t>(c.a);
    if (i > 512 || !lies_inside(c.pe, c.region, offset, c.bytes)) return false;
  }
  return true;
}

bool signal_lies_inside(const proxy_command& c) {
  return c.what == 0 || (c.what <= 2 && c.a % 8 == 0 && lies_inside(c.pe, c.signal_region, c.a, 8));
}

/// Every byte that the command names is there.
bool is_sound(const proxy_command& c) {
  if (cw::proxy_impl::names_rank(c.op) && (c.pe < 0 || c.pe >= ranks)) return false;
  switch (c.op) {
    case proxy_op::put:
      return lies_inside(c.pe, c.region, c.remote, c.bytes) && signal_lies_inside(c);
    case proxy_op::put_inline:
      return c.width <= 16 && lies_inside(c.pe, c.region, c.remote, c.width) &&
             signal_lies_inside(c);
    case proxy_op::get:
      return lies_inside(c.pe, c.region, c.remote, c.bytes);
    case proxy_op::put_strided:
    case proxy_op::get_strided:
      return blocks_lie_inside(c);
    case proxy_op::atomic:
      return c.what <= 7 && (c.width == 4 || c.width == 8) && c.remote % c.width == 0 &&
             lies_inside(c.pe, c.region, c.remote, c.width);
    case proxy_op::broadcast:
    case proxy_op::reduce:
    case proxy_op::fence:
    case proxy_op::quiet:
    case proxy_op::barrier:
      return true;  // not looked into here
    case proxy_op::none:
      return false;
  }
  return false;
}

std::vector<std::vector<std::size_t>> region_sizes() {
  std::vector<std::vector<std::size_t>> all;
  for (const auto& of : sizes) all.emplace_back(std::begin(of), std::end(of));
  return all;
}

std::string decode(reader in) {
  constexpr std::uint32_t tag = 7;
  const auto head = in.take<std::uint8_t>();
  const auto missing = in.take<std::uint16_t>();
  auto raw = in.take<proxy_command>();
  if ((head & 1U) != 0) tame(raw);
  const entry_words words = words_of(raw, tag);
  dev::proxy_entry entry{};
  bool whole = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool there = (head & 2U) == 0 || (missing >> i & 1U) == 0;
    entry.words[i] = there ? words[i] : words[i] ^ in.take<std::uint64_t>();
    const bool of_lap = entry.words[i] >> 32U == tag;
    if (!of_lap) whole = false;
    if (!there && of_lap) return {};  // other bytes of the same lap: another command
  }
  const auto read = cw::proxy_impl::read_command(entry, tag);
  if (read.has_value() != whole) return "whole or not: the decoder is wrong";
  if (!read) return {};
  if (std::memcmp(&*read, &raw, sizeof(raw)) != 0) return "another command was read";
  const std::vector<bool> reached{true, true, false};
  const auto bytes = region_sizes();
  const status s = cw::proxy_impl::validate(*read, {0, ranks, &reached, &bytes});
  if (s == status::ok && !is_sound(*read)) return "a bad command is valid";
  const std::string wrong = cw::proxy_impl::what_is_wrong(*read, {0, ranks, &reached, &bytes});
  if (s == status::ok && !wrong.empty()) return "of a valid command: " + wrong;
  if (s == status::invalid && is_sound(*read) && !has_strides(*read) &&
      read->op < proxy_op::barrier) {
    return "a sound command is not valid";
  }
  return {};
}

// ---- a whole proxy

class bench {
 public:
  static constexpr int queues = 2;
  static constexpr std::uint64_t depth = 4;

  bench()
      : proxy_(cw::device_ref::cpu(), options(), 0, ranks, {true, true, false},
               cw::local::make_engine(cw::device_ref::cpu(), {})),
        view_(proxy_.memory()) {
    for (int id = 0; id < regions; ++id) add(id);
  }

  std::string run(reader in) {
    for (int step = 0; step < 100 && !in.empty() && wrong_.empty(); ++step) {
      const auto head = in.take<std::uint8_t>();
      if (head >= 0xf0U) {
        change_world(head);
      } else {
        issue(head, in);
      }
    }
    work();
    for (const auto& q : lines_) {
      if (!q.open.empty()) fail("a command stays unread");
    }
    if (const auto at = memory().damage()) fail("byte " + std::to_string(*at) + " was changed");
    return wrong_;
  }

 private:
  struct line {
    std::uint64_t next = 0;
    std::vector<std::pair<std::uint64_t, bool>> open;  // ticket, and whether it wants a reply
  };

  static cw::proxy_options options() {
    cw::proxy_options o;
    o.queues = queues;
    o.depth = depth;
    o.thread = false;
    return o;
  }

  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void add(int id) {
    cw::proxy_impl::region_info mine;
    mine.base = memory().region(id, 0);
    mine.bytes = sizes[id][0];
    for (int rank = 0; rank < ranks; ++rank) mine.mapped.push_back(memory().region(id, rank));
    const auto which = static_cast<std::uint16_t>(id);
    auto offer = proxy_.offer_region(which, mine);
    proxy_.install_region(which, mine, {std::begin(sizes[id]), std::end(sizes[id])},
                          std::vector<std::vector<std::byte>>(ranks, std::move(offer)));
  }

  void change_world(std::uint8_t head) {
    if (head == 0xffU) {
      proxy_.lose(1);
    } else if (has_second_) {
      proxy_.remove_region(1);
      has_second_ = false;
    } else {
      add(1);
      has_second_ = true;
    }
  }

  void issue(std::uint8_t head, reader& in) {
    line& q = lines_[head & 1U];
    auto c = in.take<proxy_command>();
    if ((head & 6U) != 0) tame(c);
    keep_inside(c);
    open_target(c);
    if (q.open.size() == depth) work();
    if (q.open.size() == depth) return fail("a full queue stands still");
    const std::uint64_t ticket = q.next++;
    const bool replies = (c.flags & proxy_command::wants_reply) != 0;
    q.open.emplace_back(ticket, replies);
    std::uint16_t words = 0xffffU;
    if ((head & 24U) == 8) {
      words = in.take<std::uint16_t>();
      write(head & 1U, c, ticket, words);
      work();
      const bool read = q.open.empty() || q.open.back().first != ticket;
      if (read && words != 0xffffU) return fail("half a command was read");
      if (read) return;
      words = static_cast<std::uint16_t>(~words);
    }
    write(head & 1U, c, ticket, words);
    if ((head & 32U) == 0) work();
  }

  void write(unsigned queue, const proxy_command& c, std::uint64_t ticket, std::uint16_t which) {
    dev::proxy_entry& entry = view_.entries[queue * depth + ticket % depth];
    const entry_words words = words_of(c, static_cast<std::uint32_t>(ticket / depth) + 1);
    for (std::size_t i = words.size(); i-- > 0;) {
      if ((which >> i & 1U) == 0) continue;
      std::atomic_ref(entry.words[i]).store(words[i], std::memory_order_release);
    }
  }

  void work() {
    for (int i = 0; i < 4; ++i) proxy_.progress();
    for (unsigned i = 0; i < queues; ++i) settle(i);
  }

  /// Whatever was read has been carried out, and answered.
  void settle(unsigned queue) {
    const std::uint64_t read =
        std::atomic_ref(view_.heads[queue].consumed).load(std::memory_order_acquire);
    auto& open = lines_[queue].open;
    if (read > lines_[queue].next) fail("more was read than issued");
    while (!open.empty() && open.front().first < read) {
      const auto [ticket, replies] = open.front();
      open.erase(open.begin());
      const dev::proxy_reply& r = view_.replies[queue * depth + ticket % depth];
      const bool answered = r.stamp >> 8U == ticket / depth + 1;
      if (answered != replies) fail(replies ? "a command has no answer" : "an answer nobody wants");
      if ((r.stamp & 0xffU) > static_cast<unsigned>(cw::gravest_status)) fail("unknown status");
    }
  }

  cw::proxy proxy_;
  dev::proxy_memory view_;
  std::array<line, queues> lines_;
  bool has_second_ = true;
  std::string wrong_;
};

}  // namespace

std::string carry_out(std::span<const std::byte> input) {
  reader in(input);
  if ((in.take<std::uint8_t>() & 3U) == 0) return decode(in);
  memory().fill();
  return bench().run(in);
}

}  // namespace fuzz
