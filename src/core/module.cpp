#include "core/module.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "crosswarp/options.hpp"

namespace crosswarp {
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

}  // namespace

loaded_module load_module(const std::string& name, const char* symbol) {
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
    const auto* m = static_cast<const module_head*>(dlsym(handle, symbol));
    if (m == nullptr) return {nullptr, path.string() + " is no engine", true};
    if (std::string_view(m->version) != CROSSWARP_VERSION) {
      return {nullptr, path.string() + " is of version " + m->version + ", not " CROSSWARP_VERSION,
              true};
    }
    return {m, path.string()};
  }
  return {nullptr, "no " + file + " in " + looked};
}

}  // namespace crosswarp
