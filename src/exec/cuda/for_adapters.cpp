// A GPU and a network adapter: the adapter reads the GPU's memory, the GPU writes the adapter's
// doorbells.
#include <unistd.h>

#include "exec/backends.hpp"
#include "exec/cuda/driver.hpp"

namespace crosswarp::exec::cuda {

dmabuf export_dmabuf(device_ref d, const void* p, std::size_t bytes) {
  const device_scope here(d.ordinal());
  const auto export_range =
      driver<PFN_cuMemGetHandleForAddressRange_v11070>("cuMemGetHandleForAddressRange", 11070);
  // Whole pages, which is what allocations are made of.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t first = at / page * page;
  const std::uintptr_t end = (at + bytes + page - 1) / page * page;
  dmabuf b;
  b.offset = at - first;
  const CUresult r =
      export_range(&b.descriptor, first, end - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (r != CUDA_SUCCESS) {
    throw error(errc::not_supported, "register_memory",
                "the driver gives no dma-buf for this memory (error " + std::to_string(r) +
                    "); it needs the open kernel modules and Linux 5.12, or use "
                    "memory_kind::pinned");
  }
  return b;
}

std::uint64_t* map_doorbell(device_ref d, void* page, std::size_t bytes, std::size_t offset) {
  const device_scope here(d.ordinal());
  if (cudaHostRegister(page, bytes,
                       cudaHostRegisterIoMemory | cudaHostRegisterMapped |
                           cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    throw error(errc::not_supported, "rdma endpoint",
                "the GPU may not write the adapter's doorbells; run as root or load nvidia.ko with "
                "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"");
  }
  void* seen = nullptr;
  check(cudaHostGetDevicePointer(&seen, page, 0), "cudaHostGetDevicePointer");
  return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(seen) + offset);
}

}  // namespace crosswarp::exec::cuda
