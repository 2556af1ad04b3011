#include "core/machine.hpp"

#include <sys/stat.h>

#include <fstream>

namespace crosswarp {

std::string machine_name() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) network = {};
  return boot_id + "/" + std::to_string(network.st_ino);
}

}  // namespace crosswarp
