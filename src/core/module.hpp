// Parts of the library that need another library: modules, loaded when they are wanted.
#pragma once

#include <string>

namespace crosswarp {

/// What all that modules export begins with.
struct module_head {
  const char* version;  ///< of the library it was built with
};

struct loaded_module {
  const module_head* exported = nullptr;  ///< null: there is none
  std::string where_or_why;
  bool broken = false;  ///< there is a file, and it is of no use
};

/// What module `name` exports as `symbol`.
loaded_module load_module(const std::string& name, const char* symbol);

}  // namespace crosswarp
