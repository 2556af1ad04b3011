// Commands of the RESP server on sets, hashes and sorted sets.
#pragma once

#include "resp_lists.hpp"

namespace servers {

CW_FN inline std::uint32_t member_hash(const resp_call& c, text name) noexcept {
  return static_cast<std::uint32_t>(c.keys.hash(name));
}

CW_COLD CW_FN inline verdict resp_sadd(resp_call& c) noexcept {
  locked_key k;
  dict* set = nullptr;
  verdict v{};
  if (!look_up_to_change(c, kind::set, k, set, v)) return v;
  const arena& a = c.memory();
  heap& h = k.home->memory;
  made_entries made(a);
  bool enough = set->ready(a, h);
  for (argument_cursor at(c.args, 2); enough && at.more();) {
    const text name = at.next();
    const std::uint32_t hash = member_hash(c, name);
    if (set->get(a, hash, name) == nullptr) enough = made.add(h, hash, name, {});
  }
  if (!enough) {
    made.release(h);
    return give_up(c, set->count == 0);
  }
  std::int64_t added = 0;
  for (ref r = made.take(); r != 0; r = made.take()) {
    auto* const e = a.at<entry>(r);
    if (set->get(a, e->hash, e->name()) != nullptr) {  // it was named twice
      a.release(h, r);
    } else {
      set->link(a, h, r);
      ++added;
    }
  }
  put_integer(c.out, added);
  return verdict::done;
}

/// Whether an answer of so many parts of at most so many bytes has room. If it can never have,
/// `out` has the error.
[[nodiscard]] CW_FN inline bool answer_fits(const resp_call& c, std::uint64_t parts,
                                            std::uint64_t bytes, bool& never) noexcept {
  const std::uint64_t most = parts * (bytes + 16) + 16;
  never = most > c.options.answer_bytes;
  if (never) put_error(c.out, "ERR the answer may be too long: ask for fewer");
  return !never && most <= c.out.left();
}

CW_COLD CW_FN inline verdict resp_spop(resp_call& c) noexcept {
  if (c.args.count > 3) {
    put_syntax_error(c.out);
    return verdict::done;
  }
  pop_call<dict> p;
  verdict v{};
  if (!begin_pop(c, kind::set, p, v)) return v;
  if (p.from == nullptr) {
    p.many ? put_array(c.out, 0) : put_no_bulk(c.out);
    return verdict::done;
  }
  bool never = false;
  if (!answer_fits(c, p.count, p.from->longest, never)) {
    return never ? verdict::done : verdict::again;
  }
  if (p.many) put_array(c.out, p.count);
  for (std::uint64_t i = 0; i < p.count; ++i) {
    const std::uint32_t draw = p.k.home->draws++;
    ref* const link = p.from->any(c.memory(), hash_of({}, c.keys.options().seed + draw));
    put_bulk(c.out, c.memory().at<entry>(*link)->name());
    p.from->remove(c.memory(), p.k.home->memory, link);
  }
  if (p.from->count == 0) remove_key(c, p.k);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_hset(resp_call& c) noexcept {
  if (c.args.count % 2 != 0) {
    put_arity_error(c.out, "hset");
    return verdict::done;
  }
  locked_key k;
  dict* fields = nullptr;
  verdict v{};
  if (!look_up_to_change(c, kind::hash, k, fields, v)) return v;
  const arena& a = c.memory();
  heap& h = k.home->memory;
  made_entries made(a);
  bool enough = fields->ready(a, h);
  for (argument_cursor at(c.args, 2); enough && at.more();) {
    const text name = at.next();
    enough = made.add(h, member_hash(c, name), name, at.next());
  }
  if (!enough) {
    made.release(h);
    return give_up(c, fields->count == 0);
  }
  std::int64_t added = 0;
  for (ref r = made.take(); r != 0; r = made.take()) {
    auto* const e = a.at<entry>(r);
    ref* const place = fields->find(a, e->hash, e->name());
    if (*place != 0) {
      a.release(h, dict::exchange(a, place, r));
    } else {
      fields->link(a, h, r);
      ++added;
    }
  }
  put_integer(c.out, added);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_hget(resp_call& c) noexcept {
  locked_key k;
  dict* fields = nullptr;
  verdict v{};
  if (!look_up(c, kind::hash, k, fields, v)) return v;
  entry* const e =
      fields == nullptr ? nullptr : fields->get(c.memory(), member_hash(c, c.arg(2)), c.arg(2));
  if (e == nullptr) {
    put_no_bulk(c.out);
  } else {
    put_bulk(c.out, e->value());
  }
  return verdict::done;
}

// ---- sorted sets

/// What stands before the scores in ZADD.
struct zadd_options {
  bool if_new = false;
  bool if_there = false;
  bool if_greater = false;
  bool if_less = false;
  bool count_changes = false;
  bool increment = false;
  std::uint32_t scores = 2;  ///< the argument that they begin with
};

CW_FN inline zadd_options parse_zadd_options(const arguments& args) noexcept {
  zadd_options o;
  for (argument_cursor a(args, 2); a.more(); ++o.scores) {
    const text word = a.next();
    if (equal_in_any_case(word, "NX")) {
      o.if_new = true;
    } else if (equal_in_any_case(word, "XX")) {
      o.if_there = true;
    } else if (equal_in_any_case(word, "GT")) {
      o.if_greater = true;
    } else if (equal_in_any_case(word, "LT")) {
      o.if_less = true;
    } else if (equal_in_any_case(word, "CH")) {
      o.count_changes = true;
    } else if (equal_in_any_case(word, "INCR")) {
      o.increment = true;
    } else {
      break;
    }
  }
  return o;
}

/// False: `out` has the error.
[[nodiscard]] CW_FN inline bool check_zadd(const resp_call& c, const zadd_options& o) noexcept {
  const std::uint32_t words = c.args.count - o.scores;
  if (words == 0 || words % 2 != 0) {
    put_syntax_error(c.out);
  } else if (o.if_new && o.if_there) {
    put_error(c.out, "ERR XX and NX options at the same time are not compatible");
  } else if ((o.if_new && (o.if_greater || o.if_less)) || (o.if_greater && o.if_less)) {
    put_error(c.out, "ERR GT, LT, and/or NX options at the same time are not compatible");
  } else if (o.increment && words > 2) {
    put_error(c.out, "ERR INCR option supports a single increment-element pair");
  } else {
    double score = 0;
    for (argument_cursor a(c.args, o.scores); a.more(); (void)a.next()) {
      if (parse_double(a.next(), score)) continue;
      put_error(c.out, "ERR value is not a valid float");
      return false;
    }
    return true;
  }
  return false;
}

enum class zadd_outcome : std::uint8_t { added, changed, same, skipped, no_number };

/// What is kept of a score. Redis forgets the sign of a zero, but not in sets that are large or
/// have a long name.
CW_FN inline double kept_score(const zset& set, text name, double score) noexcept {
  constexpr std::uint32_t large = 128;
  constexpr std::uint32_t long_name = 64;
  const bool forgets =
      set.members.count < large && set.members.longest <= long_name && name.size <= long_name;
  return forgets && score == 0 ? 0 : score;
}

/// One member; `score` is then what it has. `made`: its entry, should it be new; else 0.
CW_FN inline zadd_outcome add_member(const resp_call& c, heap& h, zset& set, text name, ref made,
                                     double& score, const zadd_options& o) noexcept {
  const arena& a = c.memory();
  ref* const link = set.members.find(a, member_hash(c, name), name);
  if (link == nullptr || *link == 0) {
    if (made == 0) return zadd_outcome::skipped;
    set.link(a, h, made, kept_score(set, name, score));
    return zadd_outcome::added;
  }
  if (made != 0) a.release(h, made);  // it was named twice
  if (o.if_new) return zadd_outcome::skipped;
  const double before = zset::score_of(a.at<entry>(*link));
  if (o.increment) score += before;
  if (score != score) return zadd_outcome::no_number;
  if ((o.if_greater && score <= before) || (o.if_less && score >= before)) {
    return zadd_outcome::skipped;
  }
  if (score == before) return zadd_outcome::same;
  set.change(a, *link, kept_score(set, name, score));
  return zadd_outcome::changed;
}

/// Entries for those members that will be new, and room for them. False: no memory, and all is as
/// before.
[[nodiscard]] CW_FN inline bool make_members(const resp_call& c, heap& h, zset& set,
                                             const zadd_options& o, made_entries& made) noexcept {
  const arena& a = c.memory();
  const double score = 0;
  const text room(reinterpret_cast<const char*>(&score), sizeof(score));
  bool enough = true;
  for (argument_cursor at(c.args, o.scores); enough && at.more() && !o.if_there;) {
    (void)at.next();
    const text name = at.next();
    const std::uint32_t hash = member_hash(c, name);
    if (set.members.get(a, hash, name) == nullptr) enough = made.add(h, hash, name, room);
  }
  if (enough && set.ready(a, h, made.count())) return true;
  made.release(h);
  return false;
}

CW_COLD CW_FN inline verdict resp_zadd(resp_call& c) noexcept {
  const zadd_options o = parse_zadd_options(c.args);
  if (!check_zadd(c, o)) return verdict::done;
  locked_key k;
  zset* set = nullptr;
  verdict v{};
  if (!look_up(c, kind::zset, k, set, v)) return v;
  if (set == nullptr && o.if_there) {
    o.increment ? put_no_bulk(c.out) : put_integer(c.out, 0);
    return verdict::done;
  }
  if (set == nullptr) set = add_value<zset>(c, k, kind::zset);
  if (set == nullptr) return no_memory(c);
  heap& h = k.home->memory;
  made_entries made(c.memory());
  if (!make_members(c, h, *set, o, made)) return give_up(c, set->members.count == 0);
  std::uint32_t added = 0;
  std::uint32_t changed = 0;
  double score = 0;
  zadd_outcome last = zadd_outcome::skipped;
  for (argument_cursor a(c.args, o.scores); a.more();) {
    (void)parse_double(a.next(), score);  // it has been checked
    const text name = a.next();
    last = add_member(c, h, *set, name, made.next_is(name) ? made.take() : 0, score, o);
    added += last == zadd_outcome::added ? 1 : 0;
    changed += last == zadd_outcome::changed ? 1 : 0;
  }
  set->forget(c.memory(), h, made.count() - added);
  if (last == zadd_outcome::no_number) {  // of one that was there: nothing was added
    put_error(c.out, "ERR resulting score is not a number (NaN)");
  } else if (!o.increment) {
    put_integer(c.out, o.count_changes ? added + changed : added);
  } else if (last == zadd_outcome::skipped) {
    put_no_bulk(c.out);
  } else {
    put_score(c.out, score);
  }
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_zpopmin(resp_call& c) noexcept {
  if (c.args.count > 3) {
    put_syntax_error(c.out);
    return verdict::done;
  }
  pop_call<zset> p;
  verdict v{};
  if (!begin_pop(c, kind::zset, p, v)) return v;
  if (p.from == nullptr) {
    put_array(c.out, 0);
    return verdict::done;
  }
  bool never = false;
  if (!answer_fits(c, p.count, p.from->members.longest + 48, never)) {
    return never ? verdict::done : verdict::again;
  }
  put_array(c.out, 2 * p.count);
  for (std::uint64_t i = 0; i < p.count; ++i) {
    entry* const e = p.from->least(c.memory());
    put_bulk(c.out, e->name());
    put_score(c.out, zset::score_of(e));
    p.from->pop_least(c.memory(), p.k.home->memory);
  }
  if (p.from->members.count == 0) remove_key(c, p.k);
  return verdict::done;
}

}  // namespace servers
