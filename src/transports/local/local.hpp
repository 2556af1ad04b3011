// Copies between ranks whose memory is mapped here: the engine that every machine has.
#pragma once

#include <memory>

#include "crosswarp/device_ref.hpp"
#include "proxy/engine.hpp"

namespace crosswarp::local {

std::unique_ptr<proxy_impl::engine> make_engine(device_ref d, const proxy_impl::engine_setup& s);

}  // namespace crosswarp::local
