// What sockets ask of the host on CPU threads. Defined in src/socket; never called on a GPU.
#pragma once

#include <cstdint>

namespace crosswarp::socket_impl {

class workers;

/// A kernel waits for a socket: does some of the worker's work on the calling thread, or sleeps
/// a little until there is some.
void lend_thread(workers& w) noexcept;
/// A kernel rang a socket's bell, or made a call: has it heard, on this thread or another.
void call_worker(workers& w, std::uint32_t socket) noexcept;
void call_workers(workers& w) noexcept;

}  // namespace crosswarp::socket_impl
