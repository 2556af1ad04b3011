// What carries out a proxy's commands: one interface, capabilities as data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "crosswarp/device/proxy.hpp"
#include "crosswarp/status.hpp"

namespace crosswarp::proxy_impl {

using device::amo;
using device::element;
using device::reduction;

/// How whoever started an operation learns its end.
struct completion {
  /// Called once, by the thread that runs the engine, perhaps before the call that started the
  /// operation returns.
  void (*done)(completion&, status) = nullptr;
};

struct capabilities {
  const char* name = "";
  bool gpu_memory = false;  ///< local and remote addresses may be a GPU's
  bool atomics = false;
  bool collectives = false;
  /// An operation's target must call progress() for it to be done.
  bool target_progress = false;
};

/// Of several outcomes of one operation the gravest is told.
inline void set_worse(status& s, status other) noexcept {
  if (static_cast<int>(other) > static_cast<int>(s)) s = other;
}

/// A word or a range at a rank; checked by the proxy to lie inside its region.
struct place {
  int pe;
  std::uint16_t region;
  std::uint64_t offset;
};

/// Memory of each rank that others may reach.
struct region_info {
  std::byte* base = nullptr;  ///< this rank's
  std::size_t bytes = 0;
  bool on_host = true;  ///< the host may follow its addresses
  /// By rank: where its memory is mapped here; null where it is not.
  std::vector<std::byte*> mapped;
};

/// Everybody's bytes, by rank; collective. What engines meet by.
using exchange = std::function<std::vector<std::vector<std::byte>>(std::vector<std::byte>)>;

struct engine_setup {
  int rank = 0;
  int size = 1;
  exchange meet;
  /// By rank: this rank reaches its memory through this engine.
  std::vector<bool> reached;
};

/// Driven by one thread at a time. Operations return false when there is no room for them now:
/// nothing was done, ask again after progress(). Otherwise `c` is called with the outcome.
class engine {
 public:
  virtual ~engine() = default;
  [[nodiscard]] virtual capabilities can() const noexcept = 0;

  /// Memory of this rank that others are to reach; ids count from 0, the heap's. What it returns is
  /// given to every rank's install_region(). Neither waits for another rank.
  virtual std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) = 0;
  /// `offers` by rank.
  virtual void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> offers) = 0;
  /// Nothing is under way to it or from it.
  virtual void remove_region(std::uint16_t id) noexcept = 0;

  /// Complete locally when `c` is called.
  virtual bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) = 0;
  /// The same from memory of the proxy itself, up to 16 bytes.
  virtual bool put_small(const place& to, const std::byte* from, std::size_t bytes, completion& c) {
    return put(to, from, bytes, c);
  }
  /// Arrived when `c` is called.
  virtual bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) = 0;
  /// `old`, when not null, has the value before when `c` is called.
  virtual bool atomic(amo op, int width, const place& at, std::uint64_t operand,
                      std::uint64_t comparand, std::uint64_t* old, completion& c) = 0;
  /// Operations to a rank from now on take effect there after those from before.
  virtual bool fence() = 0;
  /// All operations from before are visible remotely when `c` is called.
  virtual bool flush(completion& c) = 0;

  virtual bool barrier(completion& c);
  virtual bool broadcast(int root, std::byte* to, const std::byte* from, std::size_t bytes,
                         completion& c);
  virtual bool reduce(reduction op, element type, std::byte* to, const std::byte* from,
                      std::size_t count, completion& c);

  /// Moves things on; true when something moved.
  virtual bool progress() = 0;
  /// Rank `pe` is dead: what is under way to it ends with peer_lost, soon.
  virtual void lose(int pe) = 0;

  /// Readable when progress() has something to do, once arm() returned true; -1: has none.
  [[nodiscard]] virtual int wake_descriptor() const noexcept { return -1; }
  /// Before sleeping. False: there is something to do now.
  virtual bool arm() { return true; }
};

inline bool engine::barrier(completion& c) {
  c.done(c, status::unsupported);
  return true;
}
inline bool engine::broadcast(int /*root*/, std::byte* /*to*/, const std::byte* /*from*/,
                              std::size_t /*bytes*/, completion& c) {
  c.done(c, status::unsupported);
  return true;
}
inline bool engine::reduce(reduction /*op*/, element /*type*/, std::byte* /*to*/,
                           const std::byte* /*from*/, std::size_t /*count*/, completion& c) {
  c.done(c, status::unsupported);
  return true;
}

}  // namespace crosswarp::proxy_impl
