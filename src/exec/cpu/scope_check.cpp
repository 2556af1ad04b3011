// Finds atomic operations whose scope is too narrow for those who share the word.
//
// On a CPU every atomic reaches everybody, so a kernel that says block scope where two ranks meet
// works here and fails on a GPU. Checked builds remember for each word who touched it at which
// scope: one block, several blocks of a rank, several ranks. What one launch did is forgotten when
// it ends, since kernel boundaries order memory for everybody. So the rule is: while a launch runs,
// a word is used at one scope, wide enough for all its users, also if barriers keep them apart.
// Ranks of other processes are not seen.
//
// The memory of this file must order nothing between the threads it watches, or it would hide
// their races from ThreadSanitizer: all of it is relaxed atomics.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "crosswarp/device/atomic.hpp"
#include "executor.hpp"

namespace crosswarp::exec::cpu {
namespace {

constexpr std::size_t live_slots = 4096;
std::atomic<std::uint32_t> next_launch{1};
std::atomic<std::uint32_t> live[live_slots];

bool is_live(std::uint32_t launch) noexcept {
  return live[launch % live_slots].load(std::memory_order_relaxed) == launch && launch != 0;
}

/// What is known about a word: its first user in a live launch, and the narrowest scope since.
struct users {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<std::uint32_t> owner{0};
  std::atomic<std::uint32_t> launch{0};
  std::atomic<std::int32_t> block{0};
  std::atomic<std::uint8_t> narrowest{0};
};

struct bucket {
  static constexpr int ways = 4;
  std::atomic<bool> busy{false};
  std::uint32_t victim = 0;
  users word[ways];

  // An x86 exchange orders by itself; elsewhere two threads may rarely miss each other's note,
  // which loses a report and never invents one, as each field is whole.
  void lock() noexcept {
    while (busy.exchange(true, std::memory_order_relaxed)) {
    }
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
  void unlock() noexcept {
    std::atomic_signal_fence(std::memory_order_acq_rel);
    busy.store(false, std::memory_order_relaxed);
  }
};

constinit bucket table[1U << 14U];

bucket& bucket_of(std::uintptr_t address) noexcept {
  return table[(address >> 2U) * 0x9e3779b97f4a7c15ULL >> 50U];
}

// What was found, by launch. Only touched when something was.
struct breach {
  std::string call;
  std::string why;
};
std::mutex breach_mutex;
std::map<std::uint32_t, breach> breaches;

void note_breach(const identity& a, const identity& b, device::scope narrow, bool ranks) {
  static constexpr const char* name[] = {"block", "device", "system"};
  const auto place = [](const identity& i) {
    if (i.launch == 0) return std::string("the host");
    return "block " + std::to_string(i.block) + " of rank handle " + std::to_string(i.owner);
  };
  const std::string text = std::string("an atomic of ") + name[static_cast<int>(narrow)] +
                           " scope is used between " + place(a) + " and " + place(b) +
                           ": it needs " + (ranks ? "system" : "device") + " scope";
  const std::scoped_lock lock(breach_mutex);
  for (const std::uint32_t launch : {a.launch, b.launch}) {
    if (launch != 0) breaches.emplace(launch, breach{"scope check", text});
  }
}

__attribute__((no_sanitize("thread"))) users& find(bucket& b, std::uintptr_t address) noexcept {
  for (users& u : b.word) {
    if (u.address.load(std::memory_order_relaxed) == address) return u;
  }
  for (users& u : b.word) {
    if (!is_live(u.launch.load(std::memory_order_relaxed))) return u;
  }
  return b.word[b.victim++ % bucket::ways];
}

}  // namespace

std::uint32_t begin_launch() noexcept {
  std::uint32_t id = 0;
  while (id == 0) id = next_launch.fetch_add(1, std::memory_order_relaxed);
  live[id % live_slots].store(id, std::memory_order_relaxed);
  return id;
}

void end_launch(std::uint32_t launch) noexcept {
  std::uint32_t mine = launch;
  live[launch % live_slots].compare_exchange_strong(mine, 0, std::memory_order_relaxed);
}

void throw_breach_of(std::uint32_t launch) {
  breach found;
  {
    const std::scoped_lock lock(breach_mutex);
    const auto it = breaches.find(launch);
    if (it == breaches.end()) return;
    found = std::move(it->second);
    breaches.erase(it);
  }
  throw error(errc::invalid_argument, found.call, found.why);
}

void note_mistake(const char* call, const char* why) noexcept {
  const running_thread& r = running();
  const std::uint32_t launch = r.decides != nullptr ? r.decides->who().launch : r.who.launch;
  if (launch == 0) return;  // the host's own thread
  const std::scoped_lock lock(breach_mutex);
  breaches.insert_or_assign(launch, breach{call, why});  // says more than a scope does
}

void check_scope(const void* address, device::scope scope, const identity& who) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  bucket& b = bucket_of(key);
  b.lock();
  users& u = find(b, key);
  constexpr auto relaxed = std::memory_order_relaxed;
  const identity first{u.owner.load(relaxed), u.launch.load(relaxed), u.block.load(relaxed)};
  const bool known = u.address.load(relaxed) == key && is_live(first.launch);
  auto narrowest = static_cast<std::uint8_t>(scope);
  bool breach = false;
  bool ranks = false;
  if (known) {
    narrowest = std::min(narrowest, u.narrowest.load(relaxed));
    const bool other_host = (first.launch == 0) != (who.launch == 0);
    ranks = first.owner != who.owner || other_host;
    const bool blocks = first.launch != who.launch || first.block != who.block;
    const auto needed = ranks    ? device::scope::system
                        : blocks ? device::scope::device
                                 : device::scope::block;
    breach = narrowest < static_cast<std::uint8_t>(needed);
    u.narrowest.store(narrowest, relaxed);
  } else if (who.launch != 0) {
    // The host is never noted: what it did before a launch is ordered before all of it.
    u.address.store(key, relaxed);
    u.owner.store(who.owner, relaxed);
    u.launch.store(who.launch, relaxed);
    u.block.store(who.block, relaxed);
    u.narrowest.store(narrowest, relaxed);
  }
  b.unlock();
  if (breach) note_breach(first, who, static_cast<device::scope>(narrowest), ranks);
}

}  // namespace crosswarp::exec::cpu
