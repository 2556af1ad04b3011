// Commands of the RESP server on sets, hashes and sorted sets.
#pragma once

#include "resp_lists.hpp"

namespace servers {

CW_FN inline std::uint32_t member_hash(const resp_call& c, text name) noexcept {
  return static_cast<std::uint32_t>(c.keys.hash(name));
}

CW_COLD CW_FN inline verdict resp_sadd(resp_call& c) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  auto* const set = value_to_change<dict>(c, k, kind::set);
  if (set == nullptr) return verdict::done;
  std::int64_t added = 0;
  for (argument_cursor a(c.args, 2); a.more();) {
    const text name = a.next();
    const std::uint32_t hash = member_hash(c, name);
    if (set->get(c.memory(), hash, name) != nullptr) continue;
    if (set->add(c.memory(), k.home->memory, hash, name, 0) == nullptr) {
      return give_up(c, set->count == 0);
    }
    ++added;
  }
  put_integer(c.out, added);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_scard(resp_call& c) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  const auto* const set = value_of<dict>(c, k, kind::set, wrong);
  if (wrong) {
    put_wrong_type(c.out);
  } else {
    put_integer(c.out, set == nullptr ? 0 : set->count);
  }
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
  const bool many = c.args.count == 3;
  std::uint64_t count = 0;
  locked_key k;
  if (!parse_count(c, count)) return verdict::done;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  auto* const set = value_of<dict>(c, k, kind::set, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return verdict::done;
  }
  if (set == nullptr) {
    many ? put_array(c.out, 0) : put_no_bulk(c.out);
    return verdict::done;
  }
  if (count > set->count) count = set->count;
  bool never = false;
  if (!answer_fits(c, count, set->longest, never)) return never ? verdict::done : verdict::again;
  if (many) put_array(c.out, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t draw = k.home->draws++;
    ref* const link = set->any(c.memory(), hash_of({}, c.keys.options().seed + draw));
    put_bulk(c.out, c.memory().at<entry>(*link)->name());
    set->remove(c.memory(), k.home->memory, link);
  }
  if (set->count == 0) remove_key(c, k);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_hset(resp_call& c) noexcept {
  if (c.args.count % 2 != 0) {
    put_arity_error(c.out, "hset");
    return verdict::done;
  }
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  auto* const fields = value_to_change<dict>(c, k, kind::hash);
  if (fields == nullptr) return verdict::done;
  const arena& a = c.memory();
  heap& h = k.home->memory;
  std::int64_t added = 0;
  for (argument_cursor at(c.args, 2); at.more();) {
    const text name = at.next();
    const text value = at.next();
    const std::uint32_t hash = member_hash(c, name);
    ref* const link = fields->find(a, hash, name);
    const bool there = link != nullptr && *link != 0;
    entry* const e =
        there ? dict::resize(a, h, link, value.size) : fields->add(a, h, hash, name, value.size);
    if (e == nullptr) return give_up(c, fields->count == 0);
    copy_bytes(e->value_data(), value.data, value.size);
    if (!there) ++added;
  }
  put_integer(c.out, added);
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_hget(resp_call& c) noexcept {
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  const auto* const fields = value_of<dict>(c, k, kind::hash, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return verdict::done;
  }
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

enum class zadd_outcome : std::uint8_t { added, changed, same, skipped, no_number, no_memory };

/// One member; `score` is then what it has.
CW_FN inline zadd_outcome add_member(const resp_call& c, heap& h, zset& set, text name,
                                     double& score, const zadd_options& o) noexcept {
  const arena& a = c.memory();
  const std::uint32_t hash = member_hash(c, name);
  const ref* const link = set.members.find(a, hash, name);
  if (link == nullptr || *link == 0) {
    if (o.if_there) return zadd_outcome::skipped;
    return set.add(a, h, hash, name, score) ? zadd_outcome::added : zadd_outcome::no_memory;
  }
  if (o.if_new) return zadd_outcome::skipped;
  const double before = zset::score_of(a.at<entry>(*link));
  if (o.increment) score += before;
  if (score != score) return zadd_outcome::no_number;
  if ((o.if_greater && score <= before) || (o.if_less && score >= before)) {
    return zadd_outcome::skipped;
  }
  if (score == before) return zadd_outcome::same;
  set.change(a, *link, score);
  return zadd_outcome::changed;
}

CW_COLD CW_FN inline verdict resp_zadd(resp_call& c) noexcept {
  const zadd_options o = parse_zadd_options(c.args);
  if (!check_zadd(c, o)) return verdict::done;
  locked_key k;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  auto* set = value_of<zset>(c, k, kind::zset, wrong);
  if (set == nullptr && !wrong && o.if_there) {
    o.increment ? put_no_bulk(c.out) : put_integer(c.out, 0);
    return verdict::done;
  }
  set = value_to_change<zset>(c, k, kind::zset);
  if (set == nullptr) return verdict::done;
  std::int64_t added = 0;
  std::int64_t changed = 0;
  double score = 0;
  zadd_outcome last = zadd_outcome::skipped;
  for (argument_cursor a(c.args, o.scores); a.more();) {
    (void)parse_double(a.next(), score);  // it has been checked
    last = add_member(c, k.home->memory, *set, a.next(), score, o);
    if (last == zadd_outcome::no_memory) return give_up(c, set->members.count == 0);
    if (last == zadd_outcome::no_number) {
      put_error(c.out, "ERR resulting score is not a number (NaN)");
      return verdict::done;
    }
    added += last == zadd_outcome::added ? 1 : 0;
    changed += last == zadd_outcome::changed ? 1 : 0;
  }
  if (!o.increment) {
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
  std::uint64_t count = 0;
  locked_key k;
  if (!parse_count(c, count)) return verdict::done;
  if (!lock_key(c, k)) return verdict::again;
  bool wrong = false;
  auto* const set = value_of<zset>(c, k, kind::zset, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return verdict::done;
  }
  if (set == nullptr) {
    put_array(c.out, 0);
    return verdict::done;
  }
  if (count > set->members.count) count = set->members.count;
  bool never = false;
  if (!answer_fits(c, count, set->members.longest + 48, never)) {
    return never ? verdict::done : verdict::again;
  }
  put_array(c.out, 2 * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    entry* const e = set->least(c.memory());
    put_bulk(c.out, e->name());
    put_score(c.out, zset::score_of(e));
    set->pop_least(c.memory(), k.home->memory);
  }
  if (set->members.count == 0) remove_key(c, k);
  return verdict::done;
}

}  // namespace servers
