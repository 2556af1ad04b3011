// Engines by name: built in, or a module that is loaded when it is wanted.
#pragma once

#include <memory>
#include <string>

#include "core/module.hpp"
#include "crosswarp/device_ref.hpp"
#include "engine.hpp"

namespace crosswarp::proxy_impl {

/// What a module exports under the name `crosswarp_engine`.
struct engine_module : module_head {
  std::unique_ptr<engine> (*make)(const engine_setup&);
};

/// Throws error(not_supported) when there is no such engine here, saying what to do.
std::unique_ptr<engine> make_engine(const std::string& name, device_ref d, const engine_setup& s);

/// Whether it could be made; for choosing one, and for people.
struct engine_presence {
  bool there;
  std::string where_or_why;
};
engine_presence find_engine(const std::string& name);

}  // namespace crosswarp::proxy_impl
