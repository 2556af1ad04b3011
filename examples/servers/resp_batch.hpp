// Pipelines of plain GETs and SETs, carried out by all threads of a group at once. Whatever else is
// asked is left to the engine, that is, to one thread.
//
// One of a GPU's threads takes microseconds for a request, and whoever asks for the same key would
// wait so long. So requests are read before a lock is taken, and answers are written after it is
// given back: under it a value is found and copied, of all requests at once.
#pragma once

#include "conversation.hpp"
#include "resp.hpp"

namespace servers {

class resp_batch {
 public:
  resp_batch() = default;
  CW_FN explicit resp_batch(const resp& engine) noexcept : one_{engine} {}

  /// As resp::step(), for a group: the same requests have the same answers, and so has who comes
  /// after them.
  template <class G>
  CW_FN step_result step(const G& g, resp_connection& c, text in, char* out,
                         std::size_t room) const noexcept {
    step_result all;
    // How many are left to one thread at a time: few, as plain ones may follow; more and more where
    // batches turn out shorter than that, since each reads ahead in vain.
    std::size_t limit = g.size() > 1 ? 1 : ~std::size_t{0};
    std::size_t by_one = 0;  // bytes of the last such
    for (;;) {
      const text rest = in.from(all.consumed);
      if (rest.size == 0 && all.consumed != 0 && is_clean(g)) return all;
      char* const to = out + all.produced;
      step_result r;
      if (g.size() > 1 && c.at == 0) r = plain(g, rest, to, room - all.produced);
      if (r.consumed == 0 && !r.waits) {
        r = one_.step(g, c, rest, to, room - all.produced, limit);
        by_one = r.consumed;
        limit *= 2;
      } else if (r.consumed > by_one) {
        limit = 1;
      }
      all = together(all, r);
      if (r.consumed == 0 || r.close) return all;
    }
  }

  /// The plain requests at the start of `in`, as many as can be carried out together.
  template <class G>
  CW_FN step_result plain(const G& g, text in, char* out, std::size_t room) const noexcept {
    constexpr std::size_t work = most * sizeof(plan);
    if (in.size == 0 || room < work + alignof(plan) + most * longest_answer) return {};
    // Plans are made at the end of `out`.
    auto* const all = reinterpret_cast<plan*>(
        (reinterpret_cast<std::uintptr_t>(out + room) - work) / alignof(plan) * alignof(plan));
    const int found = dev::leader_of(g, [&] { return read_all(in, all); });
    if (found == 0) return {};
    each(g, found, [&](int i) { all[i].hash = keys().hash(all[i].key); });
    each(g, found, [&](int i) { find_neighbours(all, found, i); });
    shard_locks locks(keys());  // the leader's
    step_result r;
    const extent e = dev::leader_of(g, [&] {
      extent wanted = reach(all, found);
      if (wanted.count > 0 && !locks.hold(wanted.shards, wanted.sets)) wanted.count = -1;
      return wanted;
    });
    r.waits = e.count < 0;
    if (e.count <= 0) return r;
    each(g, e.count, [&](int i) { look_up(all, i); });
    const int count = fitting(all, e.count);
    if (e.sets) each(g, count, [&](int i) { put_value(all[i], count); });
    if (g.rank() == 0) locks.release();
    each(g, count, [&](int i) { measure(all[i]); });
    each(g, count, [&](int i) { write(all[i], out + answers_before(all, i)); });
    if (count > 0) {
      r.consumed = all[count - 1].end;
      r.produced = answers_before(all, count);
    }
    g.sync();  // all have read the plans
    return r;
  }

  static constexpr int most = 32;  ///< requests at a time

 private:
  static constexpr std::uint32_t most_value = 64;
  /// Those who write hold so many shards at most: others want them, too.
  static constexpr int most_written = 4;
  static constexpr std::size_t longest_answer = 80;

  enum class reply : std::uint8_t { done, nothing, wrong_type, value };
  /// A request, and what became of it.
  struct alignas(16) plan {
    text key;
    text value;  ///< of SET; of GET what is to be answered
    std::uint64_t hash;
    std::uint32_t end;  ///< of the request, in what came
    std::uint32_t answer_bytes;
    entry* place;         ///< that SET writes to
    std::int32_t before;  ///< the last SET of this key before it; -1: none
    std::int32_t after;   ///< the next one after it; `most`: none
    bool sets;
    bool fits;  ///< it is carried out here
    reply says;
    char held[most_value];  ///< a copy that needs no lock
  };
  struct extent {
    std::uint64_t shards = 0;
    int count = 0;
    bool sets = false;
  };

  [[nodiscard]] CW_FN const table& keys() const noexcept { return one_.engine.keys(); }
  /// Nothing is left to be swept.
  template <class G>
  [[nodiscard]] CW_FN bool is_clean(const G& g) const noexcept {
    return dev::leader_of(g, [&] { return keys().with_rubbish() == 0; });
  }

  CW_FN static step_result together(step_result a, const step_result& b) noexcept {
    a.consumed += b.consumed;
    a.produced += b.produced;
    a.close = b.close;
    a.waits = b.waits;
    return a;
  }

  // ---- reading

  /// "$<n>\r\n<n bytes>\r\n" with few digits.
  CW_FN static bool read_bulk(text in, std::size_t& at, text& t) noexcept {
    if (at + 4 > in.size || in[at] != '$') return false;
    std::size_t size = 0;
    std::size_t i = at + 1;
    for (; i < at + 4 && i < in.size && is_digit(in[i]); ++i) {
      size = size * 10 + static_cast<std::size_t>(in[i] - '0');
    }
    const bool is_number = i > at + 1 && (in[at + 1] != '0' || i == at + 2);
    if (!is_number || i + 2 + size + 2 > in.size || in[i] != '\r') return false;
    t = {in.data + i + 2, size};
    at = i + 2 + size + 2;
    return true;
  }

  /// The request at `at`; false when it is another one, or not all of it is there.
  CW_FN static bool read(text in, std::size_t& at, plan& p) noexcept {
    constexpr std::size_t head = sizeof("*2\r\n$3\r\nGET\r\n") - 1;
    if (at + head > in.size) return false;
    const text rest = in.from(at);
    p.sets = equal(rest.first(8), "*3\r\n$3\r\n");
    if (!p.sets && !equal(rest.first(8), "*2\r\n$3\r\n")) return false;
    if (lower(rest[8]) != (p.sets ? 's' : 'g') || lower(rest[9]) != 'e' || lower(rest[10]) != 't') {
      return false;
    }
    std::size_t end = at + head;
    if (!read_bulk(in, end, p.key)) return false;
    if (p.sets && (!read_bulk(in, end, p.value) || p.value.size > most_value)) return false;
    p.end = static_cast<std::uint32_t>(end);
    at = end;
    return true;
  }

  CW_FN static int read_all(text in, plan* all) noexcept {
    int count = 0;
    for (std::size_t at = 0; count < most && at < in.size; ++count) {
      if (!read(in, at, all[count])) break;
    }
    return count;
  }

  /// What is to be locked for them; not for those that would want too much.
  CW_FN extent reach(const plan* all, int count) const noexcept {
    extent e;
    for (; e.count < count; ++e.count) {
      const plan& p = all[e.count];
      const std::uint64_t shards = e.shards | std::uint64_t{1} << keys().shard_of(p.hash);
      const bool sets = e.sets || p.sets;
      if (sets && bits_of(shards) > most_written) break;
      e.shards = shards;
      e.sets = sets;
    }
    return e;
  }
  CW_FN static int bits_of(std::uint64_t w) noexcept {
    return dev::count_bits(static_cast<std::uint32_t>(w)) +
           dev::count_bits(static_cast<std::uint32_t>(w >> 32U));
  }

  /// The SETs of the same key next to request `i`.
  CW_FN static void find_neighbours(plan* all, int count, int i) noexcept {
    plan& p = all[i];
    p.before = -1;
    p.after = most;
    for (int k = 0; k < count; ++k) {
      const plan& q = all[k];
      if (k == i || !q.sets || q.hash != p.hash || !equal(q.key, p.key)) continue;
      if (k < i) p.before = k;
      if (k > i && p.after == most) p.after = k;
    }
  }

  // ---- under the locks

  CW_FN void look_up(plan* all, int i) const noexcept {
    plan& p = all[i];
    const auto& home = keys().at(keys().shard_of(p.hash));
    entry* const e = home.keys.get(keys().memory(), static_cast<std::uint32_t>(p.hash), p.key);
    const bool is_string = e != nullptr && e->what == kind::string;
    p.place = e;
    if (p.sets) {
      p.says = reply::done;
      p.fits = is_string && dict::stays(*e, p.value.size);
    } else if (p.before >= 0) {
      p.says = reply::value;
      p.value = all[p.before].value;
      p.fits = true;  // if that one does
    } else if (!is_string) {
      p.says = e == nullptr ? reply::nothing : reply::wrong_type;
      p.fits = true;
    } else {
      p.says = reply::value;
      p.fits = e->value_bytes <= most_value;
      if (p.fits) copy_bytes(p.held, e->value_data(), e->value_bytes);
      p.value = {p.held, e->value_bytes};
    }
  }

  /// How many of them fit, from the first on.
  CW_FN static int fitting(const plan* all, int count) noexcept {
    int n = count;
    for (int i = count - 1; i >= 0; --i) n = all[i].fits ? n : i;
    return n;
  }

  /// Of several SETs of one key the last one is all that anybody can see.
  CW_FN static void put_value(plan& p, int count) noexcept {
    if (!p.sets || p.after < count) return;
    p.place->value_bytes = static_cast<std::uint32_t>(p.value.size);
    copy_bytes(p.place->value_data(), p.value.data, p.value.size);
  }

  // ---- answers

  CW_FN static text fixed_answer(reply r) noexcept {
    return r == reply::done      ? text("+OK\r\n")
           : r == reply::nothing ? text("$-1\r\n")
                                 : text(
                                       "-WRONGTYPE Operation against a key holding the wrong kind "
                                       "of value\r\n");
  }
  CW_FN static void measure(plan& p) noexcept {
    const std::size_t n = p.value.size;
    const std::size_t bytes =
        p.says == reply::value ? n + (n < 10 ? 6 : 7) : fixed_answer(p.says).size;
    p.answer_bytes = static_cast<std::uint32_t>(bytes);
  }
  CW_FN static std::size_t answers_before(const plan* all, int i) noexcept {
    std::size_t sum = 0;
    for (int k = 0; k < i; ++k) sum += all[k].answer_bytes;
    return sum;
  }
  CW_FN static void write(const plan& p, char* to) noexcept {
    writer out(to, p.answer_bytes);
    if (p.says == reply::value) {
      put_bulk(out, p.value);
    } else {
      out.put(fixed_answer(p.says));
    }
  }

  // ---- all together

  template <class G, class F>
  CW_FN static void each(const G& g, int count, F&& f) noexcept {
    for (int i = g.rank(); i < count; i += g.size()) f(i);
    g.sync();
  }

  by_leader<resp> one_;
};

}  // namespace servers
