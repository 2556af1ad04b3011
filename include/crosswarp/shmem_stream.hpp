// SHMEM in order with a stream: the host queues operations, which run after the kernels queued
// before them and before those queued after.
//
//   cw::shmem_stream calls(sh.device(), w.stream());
//   cw::launch(w, {}, fill{}, values);
//   calls.put_signal(inbox, values, bytes, flag, 1, signal_op::set, right);
//   calls.wait_until(flag, compare::ge, 1);
//   cw::launch(w, {}, use{}, inbox);
//   calls.check();                      // waits, and throws if one of them failed
#pragma once

#include <cstddef>
#include <cstdint>

#include "crosswarp/buffer.hpp"
#include "crosswarp/device/shmem.hpp"
#include "crosswarp/stream.hpp"

namespace crosswarp {

/// Calls of a context on a stream of the device that its heap is for. Each returns when it is
/// queued; what they mean is said in device/shmem.hpp. Collectives are queued by all PEs of the
/// team, and on a GPU that several PEs share each needs a stream of its own. There it is made
/// before kernels run that wait for this PE: making it allocates.
class shmem_stream {
 public:
  shmem_stream(const device::shmem& context, stream& on);

  void put(void* dest, const void* source, std::size_t bytes, int pe);
  void get(void* dest, const void* source, std::size_t bytes, int pe);
  void put_signal(void* dest, const void* source, std::size_t bytes, std::uint64_t* signal,
                  std::uint64_t value, device::signal_op how, int pe);
  void signal(std::uint64_t* signal, std::uint64_t value, device::signal_op how, int pe);
  void quiet();

  void wait_until(std::int32_t* word, device::compare how, std::int32_t value);
  void wait_until(std::uint32_t* word, device::compare how, std::uint32_t value);
  void wait_until(std::int64_t* word, device::compare how, std::int64_t value);
  void wait_until(std::uint64_t* word, device::compare how, std::uint64_t value);

  void sync();
  void barrier();
  void broadcast(void* dest, const void* source, std::size_t bytes, int root);
  void fcollect(void* dest, const void* source, std::size_t bytes);
  void collect(void* dest, const void* source, std::size_t bytes);
  void alltoall(void* dest, const void* source, std::size_t bytes);
  void reduce(device::reduction op, device::element type, void* dest, const void* source,
              std::size_t count);

  /// Waits for the stream; throws error when a call failed since the last check().
  void check();

 private:
  device::shmem context_;
  stream* on_;
  buffer<status> outcome_;  // pinned; the gravest
};

}  // namespace crosswarp
