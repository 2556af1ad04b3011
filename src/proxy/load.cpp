#include "load.hpp"

#include <mutex>
#include <set>

#include "core/log.hpp"
#include "core/module.hpp"
#include "crosswarp/error.hpp"
#include "transports/local/local.hpp"

namespace crosswarp::proxy_impl {
namespace {

loaded_module load(const std::string& name) {
  return load_module(name, "crosswarp_engine");
}

/// Who only asks whether there is one goes on without it, and may never say why.
void log_once(const std::string& name, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::scoped_lock lock(mutex);
  if (told.insert(why).second) log::warn(-1, "engine ", name, " does not load: ", why);
}

}  // namespace

engine_presence find_engine(const std::string& name) {
  if (name == "local") return {true, "built in"};
  const loaded_module l = load(name);
  if (l.broken) log_once(name, l.where_or_why);
  return {l.exported != nullptr, l.where_or_why};
}

std::unique_ptr<engine> make_engine(const std::string& name, device_ref d, const engine_setup& s) {
  if (name == "local") return local::make_engine(d, s);
  if (name != "ucx" && name != "mpi") {
    throw error(errc::invalid_argument, "CROSSWARP_ENGINE",
                "'" + name + "' is none of auto, ucx, mpi, local");
  }
  const loaded_module l = load(name);
  if (l.exported == nullptr) {
    throw error(errc::not_supported, "engine " + name,
                l.where_or_why + "; build Crosswarp with it, or set CROSSWARP_ENGINE_PATH");
  }
  return static_cast<const engine_module*>(l.exported)->make(s);
}

}  // namespace crosswarp::proxy_impl
