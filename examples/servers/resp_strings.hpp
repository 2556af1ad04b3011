// Commands of the RESP server on strings and on keys of any kind.
#pragma once

#include "resp_keys.hpp"

namespace servers {

CW_COLD CW_FN inline verdict resp_get(resp_call& c) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  entry* const e = k.get(c.memory());
  if (e == nullptr) {
    put_no_bulk(c.out);
  } else if (e->what != kind::string) {
    put_wrong_type(c.out);
  } else {
    put_bulk(c.out, e->value());
  }
  return verdict::done;
}

/// What stands after the value in SET.
struct set_options {
  bool if_new = false;
  bool if_there = false;
  bool get = false;
  text error;
};

CW_FN inline set_options parse_set_options(const arguments& args) noexcept {
  set_options o;
  for (argument_cursor a(args, 3); a.more() && o.error.size == 0;) {
    const text word = a.next();
    if (equal_in_any_case(word, "NX")) {
      o.if_new = true;
    } else if (equal_in_any_case(word, "XX")) {
      o.if_there = true;
    } else if (equal_in_any_case(word, "GET")) {
      o.get = true;
    } else if (equal_in_any_case(word, "EX") || equal_in_any_case(word, "PX") ||
               equal_in_any_case(word, "EXAT") || equal_in_any_case(word, "PXAT")) {
      o.error = "ERR keys do not expire here: SET without EX, PX, EXAT and PXAT";
    } else if (!equal_in_any_case(word, "KEEPTTL")) {
      o.error = "ERR syntax error";
    }
  }
  if (o.error.size == 0 && o.if_new && o.if_there) o.error = "ERR syntax error";
  return o;
}

CW_COLD CW_FN inline verdict resp_set(resp_call& c) noexcept {
  set_options o;
  if (c.args.count > 3) {
    o = parse_set_options(c.args);
    if (o.error.size > 0) {
      put_error(c.out, o.error);
      return verdict::done;
    }
  }
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  entry* const e = k.get(c.memory());
  const std::size_t start = c.out.written();
  if (o.get) {
    if (e != nullptr && e->what != kind::string) {
      put_wrong_type(c.out);
      return verdict::done;
    }
    if (e == nullptr) {
      put_no_bulk(c.out);
    } else {
      put_bulk(c.out, e->value());
    }
    if (c.out.overrun()) return verdict::again;
  }
  if (o.if_new ? e != nullptr : o.if_there && e == nullptr) {
    if (!o.get) put_no_bulk(c.out);
  } else if (!set_string(c, k, c.arg(2))) {
    c.out.back_to(start);
    return no_memory(c);
  } else if (!o.get) {
    put_status(c.out, "OK");
  }
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_add(resp_call& c, std::int64_t by) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  entry* const e = k.get(c.memory());
  std::int64_t value = 0;
  if (e != nullptr && e->what != kind::string) {
    put_wrong_type(c.out);
  } else if (e != nullptr && !parse_integer(e->value(), value)) {
    put_no_integer(c.out);
  } else if (value == (by > 0 ? INT64_MAX : INT64_MIN)) {
    put_error(c.out, "ERR increment or decrement would overflow");
  } else if (!set_string(c, k, digits_of(value + by).view())) {
    return no_memory(c);
  } else {
    put_integer(c.out, value + by);
  }
  return verdict::done;
}

/// Entries for all pairs. False: no memory, and all is as before.
[[nodiscard]] CW_FN inline bool make_pairs(const resp_call& c, made_entries& made) noexcept {
  const arena& a = c.memory();
  bool enough = true;
  for (argument_cursor at(c.args, 1); enough && at.more();) {
    const text name = at.next();
    const text value = at.next();
    shard& home = home_of(c, name);
    enough = home.keys.ready(a, home.memory) &&
             made.add(home.memory, static_cast<std::uint32_t>(c.keys.hash(name)), name, value);
  }
  if (enough) return true;
  for (ref r = made.take(); r != 0; r = made.take()) {
    a.release(home_of(c, a.at<entry>(r)->name()).memory, r);
  }
  for (argument_cursor at(c.args, 1); at.more(); (void)at.next()) {
    shard& home = home_of(c, at.next());
    home.keys.drop_if_empty(a, home.memory);
  }
  return false;
}

CW_COLD CW_FN inline verdict resp_mset(resp_call& c) noexcept {
  if (c.args.count % 2 == 0) {
    put_arity_error(c.out, "mset");
    return verdict::done;
  }
  if (!lock_keys(c, 1, 2)) return verdict::again;
  made_entries made(c.memory());
  if (!make_pairs(c, made)) return no_memory(c);
  for (ref r = made.take(); r != 0; r = made.take()) {
    put_key(c, find_key(c, c.memory().at<entry>(r)->name()), r);
  }
  put_status(c.out, "OK");
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_mget(resp_call& c) noexcept {
  if (!lock_keys(c, 1, 1)) return verdict::again;
  put_array(c.out, c.args.count - 1);
  for (argument_cursor a(c.args, 1); a.more();) {
    entry* const e = find_key(c, a.next()).get(c.memory());
    if (e == nullptr || e->what != kind::string) {
      put_no_bulk(c.out);
    } else {
      put_bulk(c.out, e->value());
    }
  }
  return verdict::done;
}

/// DEL and EXISTS: how many of the keys there are.
CW_COLD CW_FN inline verdict resp_count(resp_call& c, bool remove) noexcept {
  if (!lock_keys(c, 1, 1)) return verdict::again;
  std::int64_t there = 0;
  for (argument_cursor a(c.args, 1); a.more();) {
    const locked_key k = find_key(c, a.next());
    if (k.get(c.memory()) == nullptr) continue;
    ++there;
    if (remove) remove_key(c, k);
  }
  put_integer(c.out, there);
  return verdict::done;
}

}  // namespace servers
