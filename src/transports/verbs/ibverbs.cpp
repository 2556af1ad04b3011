#include "transports/verbs/ibverbs.hpp"

#include <dlfcn.h>

#include "crosswarp/error.hpp"

namespace crosswarp::verbs {

shared_library::shared_library(const char* file, const char* package)
    : file_(file), package_(package), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw error(errc::not_supported, "rdma context",
                std::string(dlerror()) + "; install " + package_);
  }
}

void* shared_library::look_up(const char* name, bool needed) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr && needed) {
    throw error(errc::not_supported, "rdma context",
                std::string(file_) + " has no " + name + "; install a newer " + package_);
  }
  return found;
}

namespace {

ibverbs load_all() {
  const shared_library l("libibverbs.so.1", "libibverbs1 and ibverbs-providers");
  ibverbs v{};
  l.find("ibv_get_device_list", v.get_device_list);
  l.find("ibv_free_device_list", v.free_device_list);
  l.find("ibv_get_device_name", v.get_device_name);
  l.find("ibv_open_device", v.open_device);
  l.find("ibv_close_device", v.close_device);
  l.find("ibv_get_async_event", v.get_async_event);
  l.find("ibv_ack_async_event", v.ack_async_event);
  l.find("ibv_query_device", v.query_device);
  l.find("ibv_query_port", v.query_port);
  l.find("ibv_query_gid", v.query_gid);
  l.find("ibv_alloc_pd", v.alloc_pd);
  l.find("ibv_dealloc_pd", v.dealloc_pd);
  l.find("ibv_reg_mr", v.reg_mr);
  l.find("ibv_dereg_mr", v.dereg_mr);
  l.find("ibv_create_ah", v.create_ah);
  l.find("ibv_destroy_ah", v.destroy_ah);
  l.find("ibv_create_cq", v.create_cq);
  l.find("ibv_destroy_cq", v.destroy_cq);
  l.find("ibv_create_srq", v.create_srq);
  l.find("ibv_destroy_srq", v.destroy_srq);
  l.find("ibv_create_qp", v.create_qp);
  l.find("ibv_modify_qp", v.modify_qp);
  l.find("ibv_destroy_qp", v.destroy_qp);
  l.find_if_there("_ibv_query_gid_ex", v.query_gid_ex);
  l.find_if_there("ibv_reg_dmabuf_mr", v.reg_dmabuf_mr);
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
