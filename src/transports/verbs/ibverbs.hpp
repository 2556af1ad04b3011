// libibverbs, loaded when somebody asks for it: programs run where it is not installed. What
// verbs.h has inline (post, poll) goes through a context and needs no symbol.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <string>

namespace crosswarp::verbs {

/// A library that is loaded when it is asked for, and never unloaded: these have threads and
/// handlers of their own. Both throw error(not_supported) that says what to install.
class shared_library {
 public:
  shared_library(const char* file, const char* package);
  template <class Function>
  void find(const char* name, Function& f) const {
    f = reinterpret_cast<Function>(look_up(name, true));
  }
  /// Null when it has none.
  template <class Function>
  void find_if_there(const char* name, Function& f) const {
    f = reinterpret_cast<Function>(look_up(name, false));
  }

 private:
  [[nodiscard]] void* look_up(const char* name, bool needed) const;
  const char* file_;
  const char* package_;
  void* handle_;
};

struct ibverbs {
  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  decltype(&::ibv_get_async_event) get_async_event;
  decltype(&::ibv_ack_async_event) ack_async_event;
  decltype(&::ibv_query_device) query_device;
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
  decltype(&::ibv_query_gid) query_gid;
  decltype(&::ibv_alloc_pd) alloc_pd;
  decltype(&::ibv_dealloc_pd) dealloc_pd;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int);
  decltype(&::ibv_dereg_mr) dereg_mr;
  decltype(&::ibv_create_ah) create_ah;
  decltype(&::ibv_destroy_ah) destroy_ah;
  decltype(&::ibv_create_cq) create_cq;
  decltype(&::ibv_destroy_cq) destroy_cq;
  decltype(&::ibv_create_srq) create_srq;
  decltype(&::ibv_destroy_srq) destroy_srq;
  decltype(&::ibv_create_qp) create_qp;
  decltype(&::ibv_modify_qp) modify_qp;
  decltype(&::ibv_destroy_qp) destroy_qp;

  // Null where the library is too old.
  decltype(&::_ibv_query_gid_ex) query_gid_ex;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr;

  /// Throws error(not_supported) that says what to install.
  static const ibverbs& load();
};

/// Throws error(system) with the words for `code` when it is not 0.
void check(int code, const char* call, const std::string& advice = {});

/// What the library made, given back by one of its functions.
template <class T>
using owned = std::unique_ptr<T, int (*)(T*)>;

/// Throws as check() does when `p` is null.
template <class T>
owned<T> own(T* p, int (*end)(T*), const char* call, const std::string& advice = {}) {
  if (p == nullptr) check(errno, call, advice);
  return {p, end};
}

}  // namespace crosswarp::verbs
