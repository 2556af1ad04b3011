// Memory as expandable allocators make it, on a GPU: chunks of cuMemCreate in a range of addresses.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "crosswarp/coll.hpp"
#include "support/coll_worlds.hpp"

namespace cw = crosswarp;

namespace {

template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  (void)cudaGetDriverEntryPointByVersion(name, &found, 10020, cudaEnableDefault, &result);
  return reinterpret_cast<Function>(found);
}

void need(CUresult r) {
  if (r != CUDA_SUCCESS) throw std::runtime_error("driver error " + std::to_string(r));
}

/// Two chunks, one behind the other, that were not made to be exported.
class expandable {
 public:
  explicit expandable(int device) {
    (void)cudaSetDevice(device);
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    need(driver<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity")(
        &chunk_, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    need(driver<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve")(&range_, 2 * chunk_, 0, 0,
                                                                       0));
    for (std::size_t i = 0; i < 2; ++i) {
      CUmemGenericAllocationHandle handle = 0;
      need(driver<PFN_cuMemCreate_v10020>("cuMemCreate")(&handle, chunk_, &what, 0));
      need(driver<PFN_cuMemMap_v10020>("cuMemMap")(range_ + i * chunk_, chunk_, 0, handle, 0));
      need(driver<PFN_cuMemRelease_v10020>("cuMemRelease")(handle));  // lives while it is mapped
    }
    CUmemAccessDesc access{};
    access.location = what.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    need(driver<PFN_cuMemSetAccess_v10020>("cuMemSetAccess")(range_, 2 * chunk_, &access, 1));
  }
  ~expandable() {
    (void)driver<PFN_cuMemUnmap_v10020>("cuMemUnmap")(range_, 2 * chunk_);
    (void)driver<PFN_cuMemAddressFree_v10020>("cuMemAddressFree")(range_, 2 * chunk_);
  }
  expandable(const expandable&) = delete;
  expandable& operator=(const expandable&) = delete;

  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(range_); }
  [[nodiscard]] std::size_t bytes() const { return 2 * chunk_; }

 private:
  std::size_t chunk_ = 0;
  CUdeviceptr range_ = 0;
};

TEST(MemoryOfAnExpandableAllocator, IsUsedInPlaceByThreadsAndRefusedToProcesses) {
  if (test_device().kind() != cw::device_kind::cuda) GTEST_SKIP() << "for GPUs";
  with_ranks(2, [](cw::world& w) {
    cw::coll all(w);
    const expandable memory(w.options().device.ordinal());
    const std::size_t count = memory.bytes() / sizeof(float);
    const std::vector<float> ones(count, 1.0F);
    cw::exec::copy_now(w.options().device, memory.data(), ones.data(), memory.bytes());
    if (cw::launched() && w.size() > 1) {
      try {
        all.register_buffer(memory.data(), memory.bytes());
        ADD_FAILURE() << "not refused";
      } catch (const cw::error& e) {
        EXPECT_EQ(e.code(), cw::errc::not_supported);
        const std::string why = e.what();
        EXPECT_NE(why.find("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"), std::string::npos)
            << why;
        EXPECT_NE(why.find("symmetric_buffer, World.empty"), std::string::npos) << why;
      }
    } else if (!cw::launched()) {
      all.register_buffer(memory.data(), memory.bytes());
      EXPECT_TRUE(all.explain(memory.data(), memory.data(), memory.bytes()).direct);
    }
    w.barrier();
    all.all_reduce(memory.data(), static_cast<const float*>(memory.data()), count);
    all.check();
    w.barrier();
    std::vector<float> got(count);
    cw::exec::copy_now(w.options().device, got.data(), memory.data(), memory.bytes());
    EXPECT_EQ(got, std::vector<float>(count, static_cast<float>(w.size())));
    // It lives until nobody uses it.
    if (!cw::launched()) all.unregister_buffer(memory.data());
  });
}

}  // namespace
