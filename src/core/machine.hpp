// Which machine a process runs on.
#pragma once

#include <string>

namespace crosswarp {

/// Equal for two processes exactly when they can pass each other descriptors: the same machine and
/// network namespace.
std::string machine_name();

}  // namespace crosswarp
