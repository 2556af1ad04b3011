// Commands of the RESP server on lists.
#pragma once

#include "resp_keys.hpp"

namespace servers {

CW_COLD CW_FN inline verdict resp_push(resp_call& c, side s) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  auto* const l = value_to_change<list>(c, k, kind::list);
  if (l == nullptr) return verdict::done;
  std::uint32_t pushed = 0;
  for (argument_cursor a(c.args, 2); a.more(); ++pushed) {
    if (l->push(c.memory(), k.home->memory, s, a.next())) continue;
    while (pushed-- > 0) l->pop(c.memory(), k.home->memory, s);  // all or nothing
    return give_up(c, l->count == 0);
  }
  put_integer(c.out, static_cast<std::int64_t>(l->count));
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

CW_COLD CW_FN inline verdict resp_pop(resp_call& c, side s) noexcept {
  if (c.args.count > 3) {
    put_arity_error(c.out, s == side::front ? text("lpop") : text("rpop"));
    return verdict::done;
  }
  const bool many = c.args.count == 3;
  std::uint64_t count = 0;
  locked_key k;
  if (!parse_count(c, count)) return verdict::done;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  auto* const l = value_of<list>(c, k, kind::list, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return verdict::done;
  }
  if (l == nullptr) {
    many ? put_no_array(c.out) : put_no_bulk(c.out);
    return verdict::done;
  }
  if (count > l->count) count = l->count;
  if (many) put_array(c.out, count);
  put_items(c, *l, s, count);
  if (c.out.overrun()) return verdict::again;
  for (std::uint64_t i = 0; i < count; ++i) l->pop(c.memory(), k.home->memory, s);
  if (l->count == 0) remove_key(c, k);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_llen(resp_call& c) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  const auto* const l = value_of<list>(c, k, kind::list, wrong);
  if (wrong) {
    put_wrong_type(c.out);
  } else {
    put_integer(c.out, l == nullptr ? 0 : static_cast<std::int64_t>(l->count));
  }
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
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  const auto* const l = value_of<list>(c, k, kind::list, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return verdict::done;
  }
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
