// A list of strings in an arena: a chain of nodes that hold many short items each. Both ends grow.
// Zeroes are an empty one.
#pragma once

#include "arena.hpp"

namespace servers {

/// Items lie between `begin` and `end`: length, bytes, length again, each at whole words, so that
/// they can be read from both ends.
struct list_node {
  ref before;
  ref next;
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t room;
  std::uint32_t items;

  [[nodiscard]] CW_FN char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  [[nodiscard]] CW_FN std::uint32_t word(std::uint32_t at) noexcept {
    return *reinterpret_cast<std::uint32_t*>(bytes() + at);
  }
  [[nodiscard]] CW_FN text item(std::uint32_t at) noexcept { return {bytes() + at + 4, word(at)}; }
  CW_FN static constexpr std::uint32_t item_bytes(std::size_t size) noexcept {
    return static_cast<std::uint32_t>((size + 3) / 4 * 4 + 8);
  }
};

/// An end of a list.
enum class side : std::uint8_t { front, back };

struct list {
  ref front;
  ref back;
  std::uint64_t count;

  /// False: no memory, and all is as before.
  [[nodiscard]] CW_COLD CW_FN bool push(const arena& a, heap& h, side s, text item) noexcept {
    const std::uint32_t need = list_node::item_bytes(item.size);
    if (!has_room(a, s, need) && !add_node(a, h, s, need)) return false;
    auto* const n = a.at<list_node>(s == side::front ? front : back);
    if (s == side::front) n->begin -= need;
    char* const to = n->bytes() + (s == side::front ? n->begin : n->end);
    if (s == side::back) n->end += need;
    const auto size = static_cast<std::uint32_t>(item.size);
    *reinterpret_cast<std::uint32_t*>(to) = size;
    copy_bytes(to + 4, item.data, item.size);
    *reinterpret_cast<std::uint32_t*>(to + need - 4) = size;
    ++n->items;
    ++count;
    return true;
  }

  /// The item at an end; the list is not empty.
  [[nodiscard]] CW_FN text peek(const arena& a, side s) const noexcept {
    if (s == side::front) {
      auto* const n = a.at<list_node>(front);
      return n->item(n->begin);
    }
    auto* const n = a.at<list_node>(back);
    return n->item(n->end - list_node::item_bytes(n->word(n->end - 4)));
  }
  /// Drops it.
  CW_COLD CW_FN void pop(const arena& a, heap& h, side s) noexcept {
    const std::uint32_t bytes = list_node::item_bytes(peek(a, s).size);
    auto* const n = a.at<list_node>(s == side::front ? front : back);
    if (s == side::front) {
      n->begin += bytes;
    } else {
      n->end -= bytes;
    }
    --count;
    if (--n->items == 0) drop_node(a, h, s);
  }

  /// Releases nodes, as many as `work` lets it. True: all of them. Nothing else can be done with a
  /// list that is half cleared.
  CW_COLD CW_FN bool clear(const arena& a, heap& h, int& work) noexcept {
    for (; front != 0; drop_node(a, h, side::front)) {
      if (work-- <= 0) return false;
    }
    count = 0;
    return true;
  }

  /// Walks over items that there are.
  class cursor {
   public:
    /// From item `first` on.
    CW_FN cursor(const arena& a, const list& l, std::uint64_t first) noexcept : a_(&a) {
      node_ = a.at<list_node>(l.front);
      while (first >= node_->items) {
        first -= node_->items;
        node_ = a.at<list_node>(node_->next);
      }
      at_ = node_->begin;
      while (first-- > 0) at_ += list_node::item_bytes(node_->word(at_));
    }
    /// From an end on.
    CW_FN cursor(const arena& a, const list& l, side s) noexcept
        : a_(&a), node_(a.at<list_node>(s == side::front ? l.front : l.back)) {
      at_ = s == side::front ? node_->begin : last();
    }
    [[nodiscard]] CW_FN text item() const noexcept { return node_->item(at_); }
    /// To the next item, which there is.
    CW_FN void next() noexcept {
      at_ += list_node::item_bytes(node_->word(at_));
      if (at_ < node_->end) return;
      node_ = a_->at<list_node>(node_->next);
      at_ = node_->begin;
    }

    /// To the one before, which there is.
    CW_FN void back() noexcept {
      if (at_ > node_->begin) {
        at_ -= list_node::item_bytes(node_->word(at_ - 4));
        return;
      }
      node_ = a_->at<list_node>(node_->before);
      at_ = last();
    }

   private:
    [[nodiscard]] CW_FN std::uint32_t last() const noexcept {
      return node_->end - list_node::item_bytes(node_->word(node_->end - 4));
    }

    const arena* a_;
    list_node* node_;
    std::uint32_t at_;
  };

 private:
  [[nodiscard]] CW_FN bool has_room(const arena& a, side s, std::uint32_t need) const noexcept {
    if (front == 0) return false;
    if (s == side::front) return a.at<list_node>(front)->begin >= need;
    const auto* const n = a.at<list_node>(back);
    return n->room - n->end >= need;
  }

  [[nodiscard]] CW_FN bool add_node(const arena& a, heap& h, side s, std::uint32_t need) noexcept {
    // Short lists are cheap, long ones have few nodes.
    const std::uint32_t usual = (count < 16 ? 96 : 1024) - sizeof(list_node);
    const std::uint32_t room = need > usual ? need : usual;
    const ref r = a.allocate(h, sizeof(list_node) + room);
    if (r == 0) return false;
    auto* const n = a.at<list_node>(r);
    const std::uint32_t start = s == side::front ? room : 0;
    *n = {.before = 0, .next = 0, .begin = start, .end = start, .room = room, .items = 0};
    if (front == 0) {
      front = back = r;
    } else if (s == side::front) {
      n->next = front;
      a.at<list_node>(front)->before = r;
      front = r;
    } else {
      n->before = back;
      a.at<list_node>(back)->next = r;
      back = r;
    }
    return true;
  }

  CW_FN void drop_node(const arena& a, heap& h, side s) noexcept {
    const ref gone = s == side::front ? front : back;
    const auto* const n = a.at<list_node>(gone);
    if (s == side::front) {
      front = n->next;
      (front != 0 ? a.at<list_node>(front)->before : back) = 0;
    } else {
      back = n->before;
      (back != 0 ? a.at<list_node>(back)->next : front) = 0;
    }
    a.release(h, gone);
  }
};

}  // namespace servers
