// A rank's world as Python holds it: who still refers to its symmetric memory, and when that is
// given back.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "crosswarp/coll.hpp"
#include "crosswarp/world.hpp"

namespace crosswarp::python {

/// Something in the symmetric heap: an array's memory, or what a communicator works with.
struct part {
  std::variant<std::monostate, symmetric_buffer<std::byte>, coll> what;
  std::atomic<bool> wanted = true;  ///< by some Python object
};

/// Symmetric memory has to be given back in the same order by all ranks, but Python's objects end
/// when they like. So an object that ends only says that it does not want its part any more; the
/// next time that all ranks meet anyhow, those parts end that nobody wants on any rank.
///
/// Members may be called by any thread, without the GIL; one works at a time.
class rank_world {
 public:
  explicit rank_world(const world_options& options);
  /// One that is somebody else's, see run(); end() has to be called before that ends.
  explicit rank_world(world& w);
  ~rank_world();
  rank_world(const rank_world&) = delete;
  rank_world& operator=(const rank_world&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] device_ref device() const noexcept { return device_; }

  /// `f(world)`, when no other thread is in a call. Throws error(invalid_argument) once it ended.
  template <class F>
  auto call(const char* name, F&& f) {
    const std::scoped_lock lock(mutex_);
    return f(alive(name));
  }

  /// Collective.
  std::shared_ptr<part> allocate(std::size_t bytes);
  std::shared_ptr<part> make_coll(const coll_options& options);

  /// Any thread, also while another is in a call.
  void abort(const std::string& why) noexcept;
  [[nodiscard]] bool ended() const;
  /// Pieces of memory that some Python object refers to.
  [[nodiscard]] int in_use() const;
  /// No calls from now on. Collective, as the destructor of a world is.
  void end() noexcept;

 private:
  world& alive(const char* call) const;
  std::shared_ptr<part> add(std::shared_ptr<part> p);
  void give_back(world& w);

  mutable std::mutex mutex_;  // of calls, and of parts_
  mutable std::mutex life_;   // of world_: what abort() needs while a call is under way
  std::unique_ptr<world> own_;
  world* world_;
  int rank_;
  int size_;
  device_ref device_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::shared_ptr<part>> parts_;  // the same numbers on all ranks
};

}  // namespace crosswarp::python
