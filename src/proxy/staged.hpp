// Memory that an engine cannot reach, through memory that it can.
#pragma once

#include <memory>

#include "crosswarp/device_ref.hpp"
#include "engine.hpp"

namespace crosswarp::proxy_impl {

/// An engine for regions in the memory of `d`, made of one that knows only the host's. Operations
/// go as requests through host memory, in pieces of which several are under way at once, and the
/// target's proxy carries them out. Collective: all ranks make one.
std::unique_ptr<engine> make_staged(std::unique_ptr<engine> inner, device_ref d,
                                    const engine_setup& s);

}  // namespace crosswarp::proxy_impl
