// Whether TCP passes between two machines: one listens, the other reaches out and is called back.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "facts.hpp"

namespace crosswarp::tool::doctor_impl {

/// `where`: HOST:PORT. Throws error(invalid_argument) when it is something else.
reach_facts reach(const std::string& where, std::chrono::seconds timeout);

/// Waits for one reach() from elsewhere; `ready` is told the address to reach. Who connects and is
/// no doctor is let go after a moment. Throws error(system) when the port cannot be had.
reach_facts answer_reach(int port, std::chrono::seconds timeout,
                         const std::function<void(const std::string& address)>& ready);

}  // namespace crosswarp::tool::doctor_impl
