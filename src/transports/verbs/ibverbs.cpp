#include "transports/verbs/ibverbs.hpp"

#include <dlfcn.h>

#include "crosswarp/error.hpp"

namespace crosswarp::verbs {
namespace {

constexpr const char* file = "libibverbs.so.1";

void* open_library() {
  // Never unloaded: its providers have threads and handlers of their own.
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw error(errc::not_supported, "rdma context",
                std::string(dlerror()) + "; install libibverbs1 and ibverbs-providers");
  }
  return handle;
}

template <class Function>
void find(void* library, const char* name, Function& f, bool needed = true) {
  f = reinterpret_cast<Function>(dlsym(library, name));
  if (f == nullptr && needed) {
    throw error(errc::not_supported, "rdma context",
                std::string(file) + " has no " + name + "; install libibverbs1 of rdma-core");
  }
}

ibverbs load_all() {
  void* const l = open_library();
  ibverbs v{};
  find(l, "ibv_get_device_list", v.get_device_list);
  find(l, "ibv_free_device_list", v.free_device_list);
  find(l, "ibv_get_device_name", v.get_device_name);
  find(l, "ibv_open_device", v.open_device);
  find(l, "ibv_close_device", v.close_device);
  find(l, "ibv_get_async_event", v.get_async_event);
  find(l, "ibv_ack_async_event", v.ack_async_event);
  find(l, "ibv_query_device", v.query_device);
  find(l, "ibv_query_port", v.query_port);
  find(l, "ibv_query_gid", v.query_gid);
  find(l, "ibv_alloc_pd", v.alloc_pd);
  find(l, "ibv_dealloc_pd", v.dealloc_pd);
  find(l, "ibv_reg_mr", v.reg_mr);
  find(l, "ibv_dereg_mr", v.dereg_mr);
  find(l, "ibv_create_cq", v.create_cq);
  find(l, "ibv_destroy_cq", v.destroy_cq);
  find(l, "ibv_create_qp", v.create_qp);
  find(l, "ibv_modify_qp", v.modify_qp);
  find(l, "ibv_destroy_qp", v.destroy_qp);
  find(l, "_ibv_query_gid_ex", v.query_gid_ex, false);
  find(l, "ibv_reg_dmabuf_mr", v.reg_dmabuf_mr, false);
  return v;
}

}  // namespace

const ibverbs& ibverbs::load() {
  static const ibverbs all = load_all();
  return all;
}

void check(int code, const char* call, const std::string& advice) {
  if (code != 0) throw error::from_errno(code, call, advice);
}

}  // namespace crosswarp::verbs
