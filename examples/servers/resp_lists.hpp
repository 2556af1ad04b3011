// Commands of the RESP server on lists.
#pragma once

#include "resp_keys.hpp"

namespace servers {

CW_COLD CW_FN inline verdict resp_push(resp_call& c, side s) noexcept {
  locked_key k;
  list* l = nullptr;
  verdict v{};
  if (!look_up_to_change(c, kind::list, k, l, v)) return v;
  std::uint32_t pushed = 0;
  for (argument_cursor a(c.args, 2); a.more(); ++pushed) {
    if (l->push(c.memory(), k.home->memory, s, a.next())) continue;
    while (pushed-- > 0) l->pop(c.memory(), k.home->memory, s);  // all or nothing
    return give_up(c, l->count == 0);
  }
  put_integer(c.out, static_cast<std::int64_t>(l->count));
  return verdict::done;
}

CW_FN inline std::uint64_t size_of(const list& l) noexcept {
  return l.count;
}
CW_FN inline std::uint64_t size_of(const dict& d) noexcept {
  return d.count;
}
CW_FN inline std::uint64_t size_of(const zset& z) noexcept {
  return z.members.count;
}

/// LLEN and SCARD.
template <class T>
CW_COLD CW_FN inline verdict resp_size(resp_call& c, kind what) noexcept {
  locked_key k;
  T* value = nullptr;
  verdict v{};
  if (!look_up(c, what, k, value, v)) return v;
  put_integer(c.out, value == nullptr ? 0 : static_cast<std::int64_t>(size_of(*value)));
  return verdict::done;
}

/// The argument that says how many, if there is one. False: `out` has the error.
[[nodiscard]] CW_FN inline bool parse_count(const resp_call& c, std::uint64_t& count) noexcept {
  std::int64_t n = 1;
  if (c.args.count > 2 && (!parse_integer(c.arg(2), n) || n < 0)) {
    put_error(c.out, "ERR value is out of range, must be positive");
    return false;
  }
  count = static_cast<std::uint64_t>(n);
  return true;
}

CW_FN inline void put_items(const resp_call& c, const list& l, side s,
                            std::uint64_t count) noexcept {
  list::cursor at(c.memory(), l, s);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) s == side::front ? at.next() : at.back();
    put_bulk(c.out, at.item());
  }
}

/// What LPOP, RPOP, SPOP and ZPOPMIN begin with.
template <class T>
struct pop_call {
  locked_key k;
  T* from = nullptr;        ///< null when there is no such key
  std::uint64_t count = 0;  ///< not more than there are
  bool many = false;        ///< an array is asked for
};
/// False: `v` is what to return.
template <class T>
[[nodiscard]] CW_FN inline bool begin_pop(resp_call& c, kind what, pop_call<T>& p,
                                          verdict& v) noexcept {
  v = verdict::done;
  p.many = c.args.count == 3;
  if (!parse_count(c, p.count) || !look_up(c, what, p.k, p.from, v)) return false;
  if (p.from != nullptr && p.count > size_of(*p.from)) p.count = size_of(*p.from);
  return true;
}

CW_COLD CW_FN inline verdict resp_pop(resp_call& c, side s) noexcept {
  if (c.args.count > 3) {
    put_arity_error(c.out, s == side::front ? text("lpop") : text("rpop"));
    return verdict::done;
  }
  pop_call<list> p;
  verdict v{};
  if (!begin_pop(c, kind::list, p, v)) return v;
  if (p.from == nullptr) {
    p.many ? put_no_array(c.out) : put_no_bulk(c.out);
    return verdict::done;
  }
  if (p.many) put_array(c.out, p.count);
  put_items(c, *p.from, s, p.count);
  if (c.out.overrun()) return verdict::again;
  for (std::uint64_t i = 0; i < p.count; ++i) p.from->pop(c.memory(), p.k.home->memory, s);
  if (p.from->count == 0) remove_key(c, p.k);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_lrange(resp_call& c) noexcept {
  std::int64_t first = 0;
  std::int64_t last = 0;
  if (!parse_integer(c.arg(2), first) || !parse_integer(c.arg(3), last)) {
    put_no_integer(c.out);
    return verdict::done;
  }
  locked_key k;
  list* l = nullptr;
  verdict v{};
  if (!look_up(c, kind::list, k, l, v)) return v;
  const std::int64_t size = l == nullptr ? 0 : static_cast<std::int64_t>(l->count);
  if (first < 0) first = first + size < 0 ? 0 : first + size;
  if (last < 0) last += size;
  if (last >= size) last = size - 1;
  if (first > last) {
    put_array(c.out, 0);
    return verdict::done;
  }
  put_array(c.out, static_cast<std::uint64_t>(last - first + 1));
  list::cursor at(c.memory(), *l, static_cast<std::uint64_t>(first));
  for (std::int64_t i = first;; ++i) {
    put_bulk(c.out, at.item());
    if (i == last) break;
    at.next();
  }
  return verdict::done;
}

}  // namespace servers
