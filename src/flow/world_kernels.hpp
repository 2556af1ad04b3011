// What ranks of a graph have their devices do for them.
#pragma once

#include "crosswarp/device/world.hpp"
#include "crosswarp/stream.hpp"
#include "flow/mail.hpp"

namespace crosswarp::flow::impl {

/// Tables by rank, in memory that the device reaches.
struct mail_tables {
  const device::flow::link* out;
  const device::flow::link* in;
  mail_bag* going;
  mail_bag* coming;
  int ranks;
  int rank;
};

/// Sends letters as far as there is room, and takes those that are there: by a kernel on `s`, or,
/// where the host reaches the memory, by the calling thread, which saves two changes of threads.
void carry_mail_once(stream& s, const mail_tables& t);
/// Queues a kernel that returns when all that its queue of the proxy was given before is done.
void queue_quiet(stream& s, const device::proxy& p, int queue, status* outcome);
/// Queues a kernel that puts, and returns when the bytes are visible there. `failed` is written
/// when it fails.
void queue_put(stream& s, const device::proxy& p, int pe, device::remote_address to,
               const std::byte* from, std::size_t bytes, status* failed);

}  // namespace crosswarp::flow::impl
