// The device that a test runs on: the CPU, or what CROSSWARP_TEST_DEVICE names.
#pragma once

#include <cstdlib>

#include "crosswarp/device_ref.hpp"

inline crosswarp::device_ref test_device() {
  const char* name = std::getenv("CROSSWARP_TEST_DEVICE");
  return crosswarp::device_ref::parse(name == nullptr ? "cpu" : name);
}
