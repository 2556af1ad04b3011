// What the commands of the RESP server have in common: one request, its keys and its answer.
#pragma once

#include "resp_answer.hpp"
#include "resp_request.hpp"
#include "resp_table.hpp"

namespace servers {

/// What became of a request.
enum class verdict : std::uint8_t {
  done,
  again,  ///< nothing happened: `out` has no room for the answer, a lock was not to be had, or
          ///< memory is not swept yet
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
  int work = 64;        ///< blocks that it may still release; others are left to who sweeps
  bool writes = false;  ///< whether it may change its keys

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

CW_FN inline shard& home_of(const resp_call& c, text name) noexcept {
  return c.keys.at(c.keys.shard_of(c.keys.hash(name)));
}

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
  return c.locks.hold(shards, c.writes);
}
/// The same for the first key, which is what most commands have.
[[nodiscard]] CW_COLD CW_FN inline bool lock_key(resp_call& c, locked_key& k) noexcept {
  const text name = c.arg(1);
  const std::uint64_t hash = c.keys.hash(name);
  const std::uint32_t home = c.keys.shard_of(hash);
  if (!c.locks.hold(std::uint64_t{1} << home, c.writes)) return false;
  k.home = &c.keys.at(home);
  k.hash = static_cast<std::uint32_t>(hash);
  k.name = name;
  k.link = k.home->keys.find(c.memory(), k.hash, name);
  return true;
}

CW_COLD CW_FN inline void remove_key(resp_call& c, const locked_key& k) noexcept {
  const ref gone = k.home->keys.unlink(c.memory(), k.home->memory, k.link);
  table::count(*k.home);
  c.keys.dispose(*k.home, gone, c.work);
}

/// A made entry becomes the key; `keys` of its shard is ready. Needs no memory.
CW_COLD CW_FN inline void put_key(resp_call& c, const locked_key& k, ref made) noexcept {
  if (k.get(c.memory()) == nullptr) {
    k.home->keys.link(c.memory(), k.home->memory, made);
    table::count(*k.home);
  } else {
    c.keys.dispose(*k.home, dict::exchange(c.memory(), k.link, made), c.work);
  }
}

/// Makes the key a string. False: no memory, and all is as before.
[[nodiscard]] CW_COLD CW_FN inline bool set_string(resp_call& c, const locked_key& k,
                                                   text value) noexcept {
  const arena& a = c.memory();
  heap& h = k.home->memory;
  entry* e = k.get(a);
  if (e == nullptr) {
    e = k.home->keys.add(a, h, k.hash, k.name, value.size);
    table::count(*k.home);
  } else if (e->what == kind::string) {
    e = dict::resize(a, h, k.link, value.size);
  } else {
    const ref made = dict::make(a, h, k.hash, k.name, value.size);
    e = made == 0 ? nullptr : a.at<entry>(made);
    if (e != nullptr) put_key(c, k, made);
  }
  if (e == nullptr) return false;
  copy_bytes(e->value_data(), value.data, value.size);
  return true;
}

/// Entries that are in no dict yet, in the order in which they were made: a request with several
/// values makes all of them before it changes anything, and releases them where one has no memory.
class made_entries {
 public:
  CW_FN explicit made_entries(const arena& a) noexcept : a_(&a) {}

  /// False: no memory.
  [[nodiscard]] CW_COLD CW_FN bool add(heap& h, std::uint32_t hash, text name,
                                       text value) noexcept {
    const ref made = dict::make(*a_, h, hash, name, value.size);
    if (made == 0) return false;
    copy_bytes(a_->at<entry>(made)->value_data(), value.data, value.size);
    (first_ == 0 ? first_ : a_->at<entry>(last_)->next) = made;
    last_ = made;
    ++count_;
    return true;
  }
  /// That were made.
  [[nodiscard]] CW_FN std::uint32_t count() const noexcept { return count_; }
  /// The oldest; 0 when there is none left.
  [[nodiscard]] CW_FN ref take() noexcept {
    const ref made = first_;
    if (made != 0) first_ = a_->at<entry>(made)->next;
    return made;
  }
  CW_FN void release(heap& h) noexcept {
    for (ref r = take(); r != 0; r = take()) a_->release(h, r);
  }
  /// Whether the oldest has this name.
  [[nodiscard]] CW_FN bool next_is(text name) const noexcept {
    return first_ != 0 && equal(a_->at<entry>(first_)->name(), name);
  }

 private:
  const arena* a_;
  ref first_ = 0;
  ref last_ = 0;
  std::uint32_t count_ = 0;
};

/// No memory, and nothing has changed. Where rubbish still has some, it is tried again.
CW_FN inline verdict no_memory(const resp_call& c) noexcept {
  if (c.keys.with_rubbish() != 0) return verdict::again;
  put_out_of_memory(c.out);
  return verdict::done;
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
/// The first key and its value, null when there is none. False: `v` is what to return.
template <class T>
[[nodiscard]] CW_FN inline bool look_up(resp_call& c, kind what, locked_key& k, T*& value,
                                        verdict& v) noexcept {
  v = verdict::again;
  if (!lock_key(c, k)) return false;
  bool wrong = false;
  value = value_of<T>(c, k, what, wrong);
  if (!wrong) return true;
  put_wrong_type(c.out);
  v = verdict::done;
  return false;
}
/// The same, with a new value where there is none.
template <class T>
[[nodiscard]] CW_FN inline bool look_up_to_change(resp_call& c, kind what, locked_key& k, T*& value,
                                                  verdict& v) noexcept {
  if (!look_up(c, what, k, value, v)) return false;
  if (value == nullptr) value = add_value<T>(c, k, what);
  if (value == nullptr) v = no_memory(c);
  return value != nullptr;
}

/// No memory in the midst of a change that was undone: `empty` values do not stay.
CW_FN inline verdict give_up(resp_call& c, bool empty) noexcept {
  if (empty) remove_key(c, find_key(c, c.arg(1)));
  return no_memory(c);
}

}  // namespace servers
