#include "load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "core/log.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "transports/local/local.hpp"

namespace crosswarp::proxy_impl {
namespace {

namespace fs = std::filesystem;

/// Where modules may lie: where the user or the launcher says, beside the program (as they are in a
/// prefix, wherever that is), beside what was built, and where it was to be installed.
std::vector<fs::path> folders() {
  std::vector<fs::path> all;
  if (const auto v = options::read("CROSSWARP_ENGINE_PATH")) all.emplace_back(*v);
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (!none) all.push_back(program.parent_path().parent_path() / "lib" / "crosswarp");
  all.emplace_back(CROSSWARP_ENGINE_BUILD_DIR);
  all.emplace_back(CROSSWARP_ENGINE_INSTALL_DIR);
  return all;
}

struct loaded {
  const engine_module* module = nullptr;
  std::string where_or_why;
  bool broken = false;  ///< there is a file, and it is of no use
};

loaded load(const std::string& name) {
  const std::string file = "crosswarp_" + name + ".so";
  if (name.find('/') != std::string::npos) return {nullptr, "'" + name + "' is no engine's name"};
  std::string looked;
  for (const fs::path& folder : folders()) {
    const fs::path path = folder / file;
    std::error_code none;
    if (!fs::exists(path, none)) {
      looked += (looked.empty() ? "" : ", ") + folder.string();
      continue;
    }
    // Never unloaded: the libraries behind an engine do not like that.
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {nullptr, dlerror(), true};
    const auto* m = static_cast<const engine_module*>(dlsym(handle, "crosswarp_engine"));
    if (m == nullptr) return {nullptr, path.string() + " is no engine", true};
    if (std::string_view(m->version) != CROSSWARP_VERSION) {
      return {nullptr, path.string() + " is of version " + m->version + ", not " CROSSWARP_VERSION,
              true};
    }
    return {m, path.string()};
  }
  return {nullptr, "no " + file + " in " + looked};
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
  const loaded l = load(name);
  if (l.broken) log_once(name, l.where_or_why);
  return {l.module != nullptr, l.where_or_why};
}

std::unique_ptr<engine> make_engine(const std::string& name, device_ref d, const engine_setup& s) {
  if (name == "local") return local::make_engine(d, s);
  if (name != "ucx" && name != "mpi") {
    throw error(errc::invalid_argument, "CROSSWARP_ENGINE",
                "'" + name + "' is none of auto, ucx, mpi, local");
  }
  const loaded l = load(name);
  if (l.module == nullptr) {
    throw error(errc::not_supported, "engine " + name,
                l.where_or_why + "; build Crosswarp with it, or set CROSSWARP_ENGINE_PATH");
  }
  return l.module->make(s);
}

}  // namespace crosswarp::proxy_impl
