// Over what a test of rdma runs: CROSSWARP_TEST_RDMA names the backend, soft by default, and
// CROSSWARP_TEST_RDMA_DEVICES the devices of both ends, "rxe0,rxe1"; one name is for both.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "crosswarp/rdma.hpp"
#include "device.hpp"

inline std::string rdma_setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

inline crosswarp::rdma::backend rdma_backend() {
  const std::string name = rdma_setting("CROSSWARP_TEST_RDMA", "soft");
  if (name == "soft") return crosswarp::rdma::backend::soft;
  if (name == "verbs") return crosswarp::rdma::backend::verbs;
  throw std::invalid_argument("CROSSWARP_TEST_RDMA=" + name + ": soft or verbs");
}
inline bool over_soft() {
  return rdma_backend() == crosswarp::rdma::backend::soft;
}

/// The device called that; the first one when `name` is empty.
inline crosswarp::rdma::adapter rdma_device(const std::string& name) {
  const crosswarp::rdma::context all(rdma_backend());
  for (const auto& a : all.devices()) {
    if (name.empty() || a.name() == name) return a;
  }
  throw std::runtime_error("there is no rdma device '" + name + "'");
}
inline crosswarp::rdma::device_context near_end() {
  const std::string names = rdma_setting("CROSSWARP_TEST_RDMA_DEVICES", "");
  return rdma_device(names.substr(0, names.find(','))).open(test_device());
}
/// Where the other end of what is on `near` is to be: on the other device when there are two.
inline crosswarp::rdma::device_context far_of(const crosswarp::rdma::device_context& near) {
  const std::string names = rdma_setting("CROSSWARP_TEST_RDMA_DEVICES", "");
  const auto comma = names.find(',');
  if (comma == std::string::npos) return near;
  return rdma_device(names.substr(comma + 1)).open(test_device());
}
