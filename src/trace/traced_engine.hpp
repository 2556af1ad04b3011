// An engine whose calls are noted.
#pragma once

#include <memory>

#include "proxy/engine.hpp"
#include "recorder.hpp"

namespace crosswarp::trace {

/// Does what `inner` does; calls of progress() that moved nothing are not noted.
std::unique_ptr<proxy_impl::engine> make_traced(std::unique_ptr<proxy_impl::engine> inner,
                                                recorder& to);

}  // namespace crosswarp::trace
