// What the commands of the RESP server have in common: one request, its keys and its answer.
#pragma once

#include "resp_answer.hpp"
#include "resp_request.hpp"
#include "resp_table.hpp"

namespace servers {

/// What became of a request.
enum class verdict : std::uint8_t {
  done,
  again,  ///< nothing happened: `out` has no room for the answer, or a lock was not to be had
  quit,   ///< done, and the connection ends
};

/// One request that is being carried out. A command writes its whole answer before it changes
/// anything, or makes sure that the answer is short (`small_answer`).
struct resp_call {
  const table& keys;
  shard_locks& locks;
  const arguments& args;
  writer& out;
  const resp_options& options;

  [[nodiscard]] CW_FN const arena& memory() const noexcept { return keys.memory(); }
  [[nodiscard]] CW_FN text arg(std::uint32_t i) const noexcept { return args.first[i]; }
};

/// Room that is there before a command is carried out: for every answer but those that contain
/// what clients have sent.
inline constexpr std::size_t small_answer = 128;

/// A key, under its shard's lock. The lock is kept until the locks are released.
struct locked_key {
  shard* home = nullptr;
  std::uint32_t hash = 0;
  text name;
  ref* link = nullptr;  ///< what refers to its entry; null or 0 when there is none

  [[nodiscard]] CW_FN entry* get(const arena& a) const noexcept {
    return link == nullptr || *link == 0 ? nullptr : a.at<entry>(*link);
  }
};

/// Callers: those who hold the key's lock.
CW_COLD CW_FN inline locked_key find_key(const resp_call& c, text name) noexcept {
  const std::uint64_t hash = c.keys.hash(name);
  locked_key k;
  k.home = &c.keys.at(c.keys.shard_of(hash));
  k.hash = static_cast<std::uint32_t>(hash);
  k.name = name;
  k.link = k.home->keys.find(c.memory(), k.hash, name);
  return k;
}

/// Locks the shards of the arguments `first`, `first + step`, ...
[[nodiscard]] CW_COLD CW_FN inline bool lock_keys(resp_call& c, std::uint32_t first,
                                                  std::uint32_t step) noexcept {
  std::uint64_t shards = 0;
  std::uint32_t i = 0;
  for (argument_cursor a(c.args, first); a.more(); ++i) {
    const text name = a.next();
    if (i % step == 0) shards |= std::uint64_t{1} << c.keys.shard_of(c.keys.hash(name));
  }
  return c.locks.hold(shards);
}
/// The same for the first key, which is what most commands have.
[[nodiscard]] CW_COLD CW_FN inline bool lock_key(resp_call& c, locked_key& k) noexcept {
  const text name = c.arg(1);
  const std::uint64_t hash = c.keys.hash(name);
  const std::uint32_t home = c.keys.shard_of(hash);
  if (!c.locks.hold(std::uint64_t{1} << home)) return false;
  k.home = &c.keys.at(home);
  k.hash = static_cast<std::uint32_t>(hash);
  k.name = name;
  k.link = k.home->keys.find(c.memory(), k.hash, name);
  return true;
}

/// Removes what there is of a value that is no string.
CW_COLD CW_FN inline void clear_value(const arena& a, heap& h, const entry& e) noexcept {
  if (e.it == 0) return;
  switch (e.what) {
    case kind::string:
      return;
    case kind::list:
      a.at<list>(e.it)->clear(a, h);
      break;
    case kind::set:
    case kind::hash:
      a.at<dict>(e.it)->clear(a, h);
      break;
    case kind::zset:
      a.at<zset>(e.it)->clear(a, h);
      break;
  }
  a.release(h, e.it);
}

CW_COLD CW_FN inline void remove_key(const resp_call& c, const locked_key& k) noexcept {
  clear_value(c.memory(), k.home->memory, *k.get(c.memory()));
  k.home->keys.remove(c.memory(), k.home->memory, k.link);
  table::count(*k.home);
}

/// Makes the key a string. False: no memory, and all is as before.
[[nodiscard]] CW_COLD CW_FN inline bool set_string(const resp_call& c, const locked_key& k,
                                                   text value) noexcept {
  const arena& a = c.memory();
  heap& h = k.home->memory;
  entry* e = k.get(a);
  if (e == nullptr) {
    e = k.home->keys.add(a, h, k.hash, k.name, value.size);
    table::count(*k.home);
  } else {
    const entry before = *e;
    e = dict::resize(a, h, k.link, value.size);
    if (e != nullptr) {
      clear_value(a, h, before);
      e->what = kind::string;
      e->it = 0;
    }
  }
  if (e == nullptr) return false;
  copy_bytes(e->value_data(), value.data, value.size);
  return true;
}

/// The key's value of kind `what`. Null when there is none; `wrong`: there is one of another kind.
template <class T>
[[nodiscard]] CW_FN inline T* value_of(const resp_call& c, const locked_key& k, kind what,
                                       bool& wrong) noexcept {
  entry* const e = k.get(c.memory());
  wrong = e != nullptr && e->what != what;
  return e == nullptr || wrong ? nullptr : c.memory().at<T>(e->it);
}
/// A new key with an empty value. Null: no memory.
template <class T>
[[nodiscard]] CW_FN inline T* add_value(const resp_call& c, const locked_key& k,
                                        kind what) noexcept {
  const arena& a = c.memory();
  heap& h = k.home->memory;
  const ref r = a.allocate(h, sizeof(T));
  if (r == 0) return nullptr;
  entry* const e = k.home->keys.add(a, h, k.hash, k.name, 0);
  if (e == nullptr) {
    a.release(h, r);
    return nullptr;
  }
  e->what = what;
  e->it = r;
  *a.at<T>(r) = T{};
  table::count(*k.home);
  return a.at<T>(r);
}
/// The value as above, a new one where there is none. Null: `out` has the error.
template <class T>
[[nodiscard]] CW_FN inline T* value_to_change(const resp_call& c, const locked_key& k,
                                              kind what) noexcept {
  bool wrong = false;
  T* value = value_of<T>(c, k, what, wrong);
  if (wrong) {
    put_wrong_type(c.out);
    return nullptr;
  }
  if (value == nullptr) value = add_value<T>(c, k, what);
  if (value == nullptr) put_out_of_memory(c.out);
  return value;
}

/// No memory in the midst of a change: `empty` values do not stay.
CW_FN inline verdict give_up(const resp_call& c, bool empty) noexcept {
  if (empty) remove_key(c, find_key(c, c.arg(1)));
  put_out_of_memory(c.out);
  return verdict::done;
}

}  // namespace servers
