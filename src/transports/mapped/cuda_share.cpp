#include "cuda_share.hpp"

#include <cuda.h>

#include <cstring>

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"
#include "exec/cuda/driver.hpp"
#include "world/fd_exchange.hpp"

namespace crosswarp::mapped {
namespace {

using exec::cuda::check;
using exec::cuda::device_scope;
using exec::cuda::driver;
using world_impl::descriptor;
using world_impl::packer;
using world_impl::unpacker;

struct driver_calls {
  PFN_cuMemCreate_v10020 create = driver<PFN_cuMemCreate_v10020>("cuMemCreate", 10020);
  PFN_cuMemRelease_v10020 release = driver<PFN_cuMemRelease_v10020>("cuMemRelease", 10020);
  PFN_cuMemMap_v10020 map = driver<PFN_cuMemMap_v10020>("cuMemMap", 10020);
  PFN_cuMemUnmap_v10020 unmap = driver<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020);
  PFN_cuMemSetAccess_v10020 set_access = driver<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020);
  PFN_cuMemAddressReserve_v10020 reserve =
      driver<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020);
  PFN_cuMemAddressFree_v10020 free_address =
      driver<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020);
  PFN_cuMemExportToShareableHandle_v10020 export_handle =
      driver<PFN_cuMemExportToShareableHandle_v10020>("cuMemExportToShareableHandle", 10020);
  PFN_cuMemImportFromShareableHandle_v10020 import_handle =
      driver<PFN_cuMemImportFromShareableHandle_v10020>("cuMemImportFromShareableHandle", 10020);
  PFN_cuMemGetAllocationGranularity_v10020 granularity =
      driver<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity", 10020);
  PFN_cuDeviceGetAttribute_v2000 attribute =
      driver<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute", 2000);
  PFN_cuPointerGetAttribute_v4000 pointer_attribute =
      driver<PFN_cuPointerGetAttribute_v4000>("cuPointerGetAttribute", 4000);
};

const driver_calls& cu() {
  static const driver_calls calls;
  return calls;
}

void check_driver(CUresult r, const char* call) {
  if (r == CUDA_SUCCESS) return;
  throw error(r == CUDA_ERROR_OUT_OF_MEMORY ? errc::out_of_memory : errc::device_fault, call,
              "CUDA driver error " + std::to_string(static_cast<int>(r)));
}

bool can_export(int device) {
  int yes = 0;
  return cu().attribute(&yes, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                        device) == CUDA_SUCCESS &&
         yes == 1;
}

// ---- descriptors (VMM)

/// Each rank's memory at equal distances in one range of addresses.
class vmm_mapping final : public mapping {
 public:
  vmm_mapping(const request& r, std::size_t bytes) {
    const device_scope here(r.device.ordinal());
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location = {CU_MEM_LOCATION_TYPE_DEVICE, r.device.ordinal()};
    what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t unit = 0;
    check_driver(cu().granularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "cuMemGetAllocationGranularity");
    stride_ = (bytes + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle own = 0;
    check_driver(cu().create(&own, stride_, &what, 0), "cuMemCreate");
    handles_.push_back(own);
    int exported = -1;
    check_driver(cu().export_handle(&exported, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 "cuMemExportToShareableHandle");
    const descriptor mine(exported);
    const auto all = allgather_descriptors(r.boot, r.who.locals, mine.get(), r.timeout);
    map_all(r, all, own);
    std::byte* const start = base[static_cast<std::size_t>(r.boot.rank())];
    check(cudaMemset(start, 0, stride_), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    r.boot.barrier(r.timeout);  // nobody writes before everybody has cleared
    how = "CUDA VMM";
  }
  ~vmm_mapping() override {
    for (std::size_t i = 0; i < mapped_; ++i) cu().unmap(range_ + i * stride_, stride_);
    if (range_ != 0) cu().free_address(range_, length_);
    for (const auto h : handles_) cu().release(h);
  }
  vmm_mapping(const vmm_mapping&) = delete;
  vmm_mapping& operator=(const vmm_mapping&) = delete;

 private:
  void map_all(const request& r, const std::vector<descriptor>& all,
               CUmemGenericAllocationHandle own) {
    length_ = stride_ * all.size();
    check_driver(cu().reserve(&range_, length_, 0, 0, 0), "cuMemAddressReserve");
    base.assign(static_cast<std::size_t>(r.boot.size()), nullptr);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int rank = r.who.locals[i];
      CUmemGenericAllocationHandle handle = own;
      if (rank != r.boot.rank()) {
        // Imported by value: the driver takes the number of the descriptor for the address.
        auto* const fd = reinterpret_cast<void*>(static_cast<std::uintptr_t>(all[i].get()));
        check_driver(cu().import_handle(&handle, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                     "cuMemImportFromShareableHandle");
        handles_.push_back(handle);
      }
      check_driver(cu().map(range_ + i * stride_, stride_, 0, handle, 0), "cuMemMap");
      ++mapped_;
      base[static_cast<std::size_t>(rank)] = reinterpret_cast<std::byte*>(range_ + i * stride_);
    }
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, r.device.ordinal()};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_driver(cu().set_access(range_, length_, &access, 1), "cuMemSetAccess");
  }

  std::size_t stride_ = 0;
  std::size_t length_ = 0;
  std::size_t mapped_ = 0;
  CUdeviceptr range_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

// ---- CUDA IPC handles

/// 0 when the driver does not know.
CUdeviceptr start_of_allocation(const void* p) {
  CUdeviceptr start = 0;
  const CUresult found = cu().pointer_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                reinterpret_cast<CUdeviceptr>(p));
  return found == CUDA_SUCCESS ? start : 0;
}

/// What a rank tells the others about memory from cudaMalloc.
struct ipc_ticket {
  cudaIpcMemHandle_t handle{};
  std::uint64_t offset = 0;  // of the buffer in its allocation
};

/// Memory of other processes by CUDA IPC, of this one as it is. An allocation that is opened more
/// than once is mapped once: the driver counts.
class ipc_mapping final : public mapping {
 public:
  ipc_mapping(const request& r, void* mine, bool owned)
      : device_(r.device), owned_(owned ? mine : nullptr) {
    const device_scope here(r.device.ordinal());
    try {
      agree_to_share(r, open_all(r, mine));
    } catch (...) {
      close();
      throw;
    }
    how = "CUDA IPC";
  }
  ~ipc_mapping() override { close(); }
  ipc_mapping(const ipc_mapping&) = delete;
  ipc_mapping& operator=(const ipc_mapping&) = delete;

 private:
  /// Returns what is in the way; then not all of it is open.
  std::string open_all(const request& r, void* mine) {
    ipc_ticket ticket;
    const CUdeviceptr start = start_of_allocation(mine);
    ticket.offset = reinterpret_cast<CUdeviceptr>(mine) - start;
    check(cudaIpcGetMemHandle(&ticket.handle, reinterpret_cast<void*>(start)),
          "cudaIpcGetMemHandle");
    const auto all = r.boot.allgather(packer().raw(&ticket, sizeof(ticket)).take(), r.timeout);
    base.assign(static_cast<std::size_t>(r.boot.size()), nullptr);
    for (const int rank : r.who.locals) {
      const auto i = static_cast<std::size_t>(rank);
      if (rank == r.boot.rank()) {
        base[i] = static_cast<std::byte*>(mine);
        continue;
      }
      ipc_ticket theirs;
      unpacker(all[i]).raw(&theirs, sizeof(theirs));
      void* opened = nullptr;
      const cudaError_t e =
          cudaIpcOpenMemHandle(&opened, theirs.handle, cudaIpcMemLazyEnablePeerAccess);
      if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return "cannot open what rank " + std::to_string(rank) +
               " offers by CUDA IPC: " + cudaGetErrorString(e);
      }
      opened_.push_back(opened);
      base[i] = static_cast<std::byte*>(opened) + theirs.offset;
    }
    return {};
  }
  void close() noexcept {
    for (void* p : opened_) cudaIpcCloseMemHandle(p);
    exec::release(device_, memory_kind::device, owned_);
  }

  device_ref device_;
  void* owned_;
  std::vector<void*> opened_;
};

}  // namespace

std::unique_ptr<mapping> share_new_on_gpu(const request& r, std::size_t bytes) {
  const auto votes =
      r.boot.allgather(packer().u32(can_export(r.device.ordinal()) ? 1 : 0).take(), r.timeout);
  bool all = true;
  for (const auto& v : votes) all = all && unpacker(v).u32() == 1;
  if (all) return std::make_unique<vmm_mapping>(r, bytes);
  return std::make_unique<ipc_mapping>(r, exec::allocate(r.device, memory_kind::device, bytes),
                                       true);
}

std::unique_ptr<mapping> share_existing_on_gpu(const request& r, void* p, std::size_t /*bytes*/) {
  return std::make_unique<ipc_mapping>(r, p, false);
}

namespace {

/// Why kernels of the device had better not use it; whoever has it.
std::string misplaced(device_ref d, const void* p) {
  cudaPointerAttributes a{};
  if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
    (void)cudaGetLastError();
    return "this is no memory that CUDA knows";
  }
  if (a.type == cudaMemoryTypeUnregistered) {
    return "this is host memory, and the world is on " + d.name();
  }
  if (a.type == cudaMemoryTypeDevice && a.device != d.ordinal()) {
    return "this lies on cuda:" + std::to_string(a.device) + ", and the world is on " + d.name();
  }
  return {};
}

}  // namespace

std::string gpu_obstacle(const request& r, const void* p, std::size_t bytes) {
  if (bytes == 0 && r.boot.in_process()) return {};  // nobody reads it
  const device_scope here(r.device.ordinal());
  const auto* const last = static_cast<const std::byte*>(p) + (bytes == 0 ? 0 : bytes - 1);
  for (const void* const at : {p, static_cast<const void*>(last)}) {
    if (auto why = misplaced(r.device, at); !why.empty()) return why;
  }
  if (r.boot.in_process()) return {};
  cudaIpcMemHandle_t handle{};
  const CUdeviceptr start = start_of_allocation(p);
  if (cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(start)) != cudaSuccess) {
    (void)cudaGetLastError();
    return "its allocator gives no IPC handle (expandable segments, VMM, pools, pinned memory): "
           "take the memory from cudaMalloc, set "
           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False for PyTorch, or allocate symmetric "
           "memory (symmetric_buffer, World.empty), which needs no registration";
  }
  if (start_of_allocation(last) != start) return "this is more than one allocation";
  return {};
}

}  // namespace crosswarp::mapped
