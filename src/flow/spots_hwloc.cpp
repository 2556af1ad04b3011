#include <hwloc.h>

#include <memory>
#include <type_traits>

#include "crosswarp/error.hpp"
#include "flow/spots.hpp"

namespace crosswarp::flow::impl {
namespace {

struct destroys {
  void operator()(hwloc_topology_t t) const noexcept { hwloc_topology_destroy(t); }
  void operator()(hwloc_bitmap_t b) const noexcept { hwloc_bitmap_free(b); }
};
using topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, destroys>;
using bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, destroys>;

topology load(const std::string& synthetic) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  topology t(made);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(made, synthetic.c_str()) != 0) {
    throw error(errc::invalid_argument, "topology", "hwloc does not understand " + synthetic);
  }
  return hwloc_topology_load(made) == 0 ? std::move(t) : nullptr;
}

/// Read once: that takes as long as thousands of questions.
hwloc_topology_t this_machine() {
  static const topology t = load({});
  return t.get();
}

/// The one object of its kind that all these cores are in; -1: there is none, or several.
int only_one(hwloc_topology_t t, hwloc_const_cpuset_t cores, hwloc_obj_type_t kind) {
  int found = -1;
  for (hwloc_obj_t o = nullptr;
       (o = hwloc_get_next_obj_covering_cpuset_by_type(t, cores, kind, o)) != nullptr;) {
    if (found >= 0) return -1;
    found = static_cast<int>(o->logical_index);
  }
  return found;
}

}  // namespace

machine_spot spot_of(const std::vector<int>& cores, const std::string& synthetic) {
  const topology other = synthetic.empty() ? nullptr : load(synthetic);
  hwloc_topology_t t = other ? other.get() : this_machine();
  const bitmap set(hwloc_bitmap_alloc());
  if (t == nullptr || !set || cores.empty()) return {};
  for (const int c : cores) hwloc_bitmap_set(set.get(), static_cast<unsigned>(c));
  return {0, only_one(t, set.get(), HWLOC_OBJ_PACKAGE), only_one(t, set.get(), HWLOC_OBJ_NUMANODE)};
}

std::string knower_of_spots() {
  const unsigned v = hwloc_get_api_version();
  return "hwloc " + std::to_string(v >> 16U) + "." + std::to_string((v >> 8U) & 0xffU);
}

}  // namespace crosswarp::flow::impl
