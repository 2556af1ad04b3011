// Names and what belongs to them, in an arena: a hash table that grows and shrinks by a few buckets
// at a time (linear hashing), so that no call ever moves all of it. Zeroes are an empty one.
#pragma once

#include "arena.hpp"

namespace servers {

/// An array that grows without moving: parts of 8, 8, 16, 32, ... words.
struct segments {
  static constexpr std::uint32_t first = 8;
  static constexpr int most = 24;
  ref part[most];

  /// The segment of word `i`, which is its first one when `i` is a power of two.
  CW_FN static constexpr unsigned index(std::uint32_t i) noexcept {
    return i < first ? 0 : highest_bit(i / first) + 1;
  }
  CW_FN static constexpr std::uint32_t begin(unsigned segment) noexcept {
    return segment == 0 ? 0 : first << (segment - 1);
  }
  CW_FN static constexpr bool begins(std::uint32_t i) noexcept {
    return i % first == 0 && begin(index(i)) == i;
  }
  [[nodiscard]] CW_FN ref& at(const arena& a, std::uint32_t i) const noexcept {
    const unsigned s = index(i);
    return a.at<ref>(part[s])[i - begin(s)];
  }
  /// Makes room for word `i`, the words before it being there. False: no memory.
  [[nodiscard]] CW_FN bool add(const arena& a, heap& h, std::uint32_t i) noexcept {
    if (!begins(i)) return true;
    const unsigned s = index(i);
    if (s >= most) return false;
    part[s] = a.allocate(h, sizeof(ref) * (s == 0 ? first : begin(s)));
    return part[s] != 0;
  }
  /// Word `i`, the last one, is no longer needed.
  CW_FN void remove(const arena& a, heap& h, std::uint32_t i) noexcept {
    if (!begins(i)) return;
    a.release(h, part[index(i)]);
    part[index(i)] = 0;
  }
  CW_FN void clear(const arena& a, heap& h) noexcept {
    for (ref& p : part) {
      if (p != 0) a.release(h, p);
      p = 0;
    }
  }
};

enum class kind : std::uint32_t { string, list, set, hash, zset };

/// A name and its value, which follow it in its block: first the name, then the value's bytes.
struct entry {
  ref next;
  std::uint32_t hash;
  std::uint32_t name_bytes;
  std::uint32_t value_bytes;
  kind what;         ///< for keys: what the value is
  std::uint32_t it;  ///< for keys: the value unless it is a string; for members: place in the order

  [[nodiscard]] CW_FN char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  [[nodiscard]] CW_FN text name() noexcept { return {bytes(), name_bytes}; }
  [[nodiscard]] CW_FN char* value_data() noexcept { return bytes() + name_bytes; }
  [[nodiscard]] CW_FN text value() noexcept { return {value_data(), value_bytes}; }
};

CW_FN constexpr std::size_t entry_bytes(std::size_t name, std::size_t value) noexcept {
  return sizeof(entry) + name + value;
}

/// 64 bits of `t`; `seed` keeps who does not know it from choosing names that collide.
CW_COLD CW_FN inline std::uint64_t hash_of(text t, std::uint64_t seed) noexcept {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  std::uint64_t h = seed ^ (t.size * odd);
  std::size_t i = 0;
  std::uint64_t w = 0;
  for (; i + 8 <= t.size; i += 8) {  // of a size that compilers know
    memcpy(&w, t.data + i, sizeof(w));
    h = (h ^ w) * odd;
    h ^= h >> 29U;
  }
  if (i < t.size) {
    w = 0;
    memcpy(&w, t.data + i, t.size - i);
    h = (h ^ w) * odd;
    h ^= h >> 29U;
  }
  h *= 0xbf58476d1ce4e5b9;
  return h ^ h >> 32U;
}

struct dict {
  std::uint32_t count;
  std::uint32_t buckets;
  std::uint32_t longest;  ///< no name here has more bytes
  segments table;

  /// The word that refers to the entry, or one that holds 0 when there is none. Null when empty.
  [[nodiscard]] CW_COLD CW_FN ref* find(const arena& a, std::uint32_t hash,
                                        text name) const noexcept {
    if (buckets == 0) return nullptr;
    ref* link = &table.at(a, bucket_of(hash));
    while (*link != 0) {
      auto* const e = a.at<entry>(*link);
      if (e->hash == hash && equal(e->name(), name)) break;
      link = &e->next;
    }
    return link;
  }
  [[nodiscard]] CW_FN entry* get(const arena& a, std::uint32_t hash, text name) const noexcept {
    const ref* const link = find(a, hash, name);
    return link == nullptr || *link == 0 ? nullptr : a.at<entry>(*link);
  }

  /// An entry that is in no dict yet, its value not initialised. 0: no memory.
  [[nodiscard]] CW_FN static ref make(const arena& a, heap& h, std::uint32_t hash, text name,
                                      std::size_t value_bytes) noexcept;
  /// Whether link() can be called. False: no memory.
  [[nodiscard]] CW_FN bool ready(const arena& a, heap& h) noexcept {
    if (buckets == 0) grow(a, h);
    return buckets > 0;
  }
  /// Puts a made entry to the others; its name is not among them. Needs no memory.
  CW_FN void link(const arena& a, heap& h, ref made) noexcept;
  /// Puts a made entry into the place of one of the same name, which is then in no dict.
  CW_FN static ref exchange(const arena& a, ref* place, ref made) noexcept {
    const ref before = *place;
    a.at<entry>(made)->next = a.at<entry>(before)->next;
    *place = made;
    return before;
  }
  /// Takes an entry out, which is then in no dict.
  [[nodiscard]] CW_FN ref unlink(const arena& a, heap& h, ref* place) noexcept {
    const ref gone = *place;
    *place = a.at<entry>(gone)->next;
    --count;
    shrink(a, h);
    return gone;
  }

  /// A new entry for a name that is not there, its value not initialised. Null: no memory.
  [[nodiscard]] CW_FN entry* add(const arena& a, heap& h, std::uint32_t hash, text name,
                                 std::size_t value_bytes) noexcept;
  /// Whether the entry's block does for a value of another size.
  [[nodiscard]] CW_FN static bool stays(const entry& e, std::size_t value_bytes) noexcept {
    const std::size_t before = entry_bytes(e.name_bytes, e.value_bytes);
    const std::size_t after = entry_bytes(e.name_bytes, value_bytes);
    return before == after ||
           (class_of(before) == class_of(after) && class_of(after) < size_classes);
  }
  /// Gives the entry room for a value of another size; its bytes are not kept. Null: no memory, and
  /// all is as before.
  [[nodiscard]] CW_FN static entry* resize(const arena& a, heap& h, ref* link,
                                           std::size_t value_bytes) noexcept;
  CW_FN void remove(const arena& a, heap& h, ref* place) noexcept {
    a.release(h, unlink(a, h, place));
  }
  /// Some entry, from a bucket that `random` chooses; the dict is not empty.
  [[nodiscard]] CW_FN ref* any(const arena& a, std::uint64_t random) const noexcept;
  /// An empty one needs no buckets.
  CW_FN void drop_if_empty(const arena& a, heap& h) noexcept {
    if (count > 0) return;
    table.clear(a, h);
    buckets = 0;
    longest = 0;
  }
  /// Releases entries, as many as `work` lets it. True: all of them. Nothing else can be done with
  /// one that is half cleared.
  CW_FN bool clear(const arena& a, heap& h, int& work) noexcept;

 private:
  [[nodiscard]] CW_FN std::uint32_t bucket_of(std::uint32_t hash) const noexcept {
    const std::uint32_t half = std::uint32_t{1} << highest_bit(buckets);
    const std::uint32_t i = hash & (2 * half - 1);
    return i < buckets ? i : i - half;
  }
  CW_FN void grow(const arena& a, heap& h) noexcept;
  CW_FN void shrink(const arena& a, heap& h) noexcept;
};

CW_COLD CW_FN inline ref dict::make(const arena& a, heap& h, std::uint32_t hash, text name,
                                    std::size_t value_bytes) noexcept {
  const ref r = a.allocate(h, entry_bytes(name.size, value_bytes));
  if (r == 0) return 0;
  auto* const e = a.at<entry>(r);
  *e = {.next = 0,
        .hash = hash,
        .name_bytes = static_cast<std::uint32_t>(name.size),
        .value_bytes = static_cast<std::uint32_t>(value_bytes),
        .what = kind::string,
        .it = 0};
  copy_bytes(e->bytes(), name.data, name.size);
  return r;
}

CW_COLD CW_FN inline void dict::link(const arena& a, heap& h, ref made) noexcept {
  if (count >= buckets) grow(a, h);
  auto* const e = a.at<entry>(made);
  ref& bucket = table.at(a, bucket_of(e->hash));
  e->next = bucket;
  bucket = made;
  ++count;
  if (e->name_bytes > longest) longest = e->name_bytes;
}

CW_COLD CW_FN inline entry* dict::add(const arena& a, heap& h, std::uint32_t hash, text name,
                                      std::size_t value_bytes) noexcept {
  const ref made = ready(a, h) ? make(a, h, hash, name, value_bytes) : 0;
  if (made == 0) {
    drop_if_empty(a, h);
    return nullptr;
  }
  link(a, h, made);
  return a.at<entry>(made);
}

CW_COLD CW_FN inline entry* dict::resize(const arena& a, heap& h, ref* link,
                                         std::size_t value_bytes) noexcept {
  auto* e = a.at<entry>(*link);
  const bool fits = stays(*e, value_bytes);
  const ref r = fits ? 0 : a.allocate(h, entry_bytes(e->name_bytes, value_bytes));
  if (r == 0 && !fits && value_bytes > e->value_bytes) return nullptr;
  if (r != 0) {  // else it stays where it is, in a larger block than it needs if it must
    auto* const moved = a.at<entry>(r);
    *moved = *e;
    copy_bytes(moved->bytes(), e->bytes(), e->name_bytes);
    a.release(h, *link);
    *link = r;
    e = moved;
  }
  e->value_bytes = static_cast<std::uint32_t>(value_bytes);
  return e;
}

/// One more bucket, which takes its part of one that was there. Without memory chains grow instead.
CW_COLD CW_FN inline void dict::grow(const arena& a, heap& h) noexcept {
  if (buckets == 0) {
    if (!table.add(a, h, 0)) return;
    for (std::uint32_t i = 0; i < segments::first; ++i) table.at(a, i) = 0;
    buckets = segments::first;
    return;
  }
  const std::uint32_t added = buckets;
  if (!table.add(a, h, added)) return;
  const std::uint32_t half = std::uint32_t{1} << highest_bit(added);
  ref* stays = &table.at(a, added - half);
  ref* moves = &table.at(a, added);
  for (ref r = *stays; r != 0; r = a.at<entry>(r)->next) {
    ref*& chain = (a.at<entry>(r)->hash & (2 * half - 1)) == added ? moves : stays;
    *chain = r;
    chain = &a.at<entry>(r)->next;
  }
  *stays = 0;
  *moves = 0;
  ++buckets;
}

/// Puts the last buckets' entries to those that they came from, at most four at a time: so there
/// are never many more buckets than entries.
CW_FN inline void dict::shrink(const arena& a, heap& h) noexcept {
  if (count == 0) return drop_if_empty(a, h);
  for (int i = 0; i < 4 && buckets > segments::first && count < buckets / 4; ++i) {
    const std::uint32_t last = buckets - 1;
    ref* chain = &table.at(a, last - (std::uint32_t{1} << highest_bit(last)));
    while (*chain != 0) chain = &a.at<entry>(*chain)->next;
    *chain = table.at(a, last);
    table.remove(a, h, last);
    buckets = last;
  }
}

CW_FN inline ref* dict::any(const arena& a, std::uint64_t random) const noexcept {
  auto i = static_cast<std::uint32_t>(random % buckets);
  while (table.at(a, i) == 0) i = i + 1 == buckets ? 0 : i + 1;
  return &table.at(a, i);
}

CW_COLD CW_FN inline bool dict::clear(const arena& a, heap& h, int& work) noexcept {
  while (buckets > 0) {
    if (work-- <= 0) return false;
    ref& last = table.at(a, buckets - 1);
    if (last == 0) {
      --buckets;
      continue;
    }
    const ref gone = last;
    last = a.at<entry>(gone)->next;
    a.release(h, gone);
    --count;
  }
  drop_if_empty(a, h);
  return true;
}

}  // namespace servers
