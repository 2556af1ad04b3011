// Streams, events and memory of CUDA devices.
#include "cuda.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "../backends.hpp"
#include "crosswarp/error.hpp"
#include "kept_memory.hpp"

namespace crosswarp::exec::cuda {

void check(int code, const char* call) {
  if (code == cudaSuccess) return;
  const auto e = static_cast<cudaError_t>(code);
  (void)cudaGetLastError();  // a failed launch must not be reported again by the next call
  const errc kind = e == cudaErrorMemoryAllocation            ? errc::out_of_memory
                    : e == cudaErrorCooperativeLaunchTooLarge ? errc::does_not_fit
                    : e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver
                        ? errc::not_supported
                        : errc::device_fault;
  throw error(kind, call, std::string(cudaGetErrorName(e)) + ": " + cudaGetErrorString(e));
}

device_scope::device_scope(int ordinal) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ != ordinal) check(cudaSetDevice(ordinal), "cudaSetDevice");
}
device_scope::~device_scope() {
  cudaSetDevice(before_);
}

void check_resident(int device, const void* function, const launch_shape& shape, int grids) {
  const device_scope here(device);
  constexpr std::size_t without_asking = 48 * 1024;
  if (shape.shared_bytes > without_asking) {
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "cudaFuncSetAttribute");
  }
  if (!shape.resident) return;
  int per_processor = 0;
  int processors = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, function, shape.threads,
                                                      shape.shared_bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  const long fit = static_cast<long>(per_processor) * processors;
  const long asked = static_cast<long>(shape.blocks) * grids;
  if (asked <= fit) return;
  throw error(errc::does_not_fit, "launch",
              std::to_string(asked) + " resident blocks of " + std::to_string(shape.threads) +
                  " threads (" + std::to_string(grids) + " ranks of " +
                  std::to_string(shape.blocks) + "), but cuda:" + std::to_string(device) +
                  " holds " + std::to_string(fit) + " of this kernel at once");
}

bool can_place_early(int device) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  return major >= 9;
}

namespace {

class cuda_event final : public event_backend {
 public:
  explicit cuda_event(int device) {
    const device_scope here(device);
    check(cudaEventCreate(&event_), "cudaEventCreate");
  }
  ~cuda_event() override { cudaEventDestroy(event_); }
  cuda_event(const cuda_event&) = delete;
  cuda_event& operator=(const cuda_event&) = delete;

  [[nodiscard]] bool ready() const override {
    const cudaError_t e = cudaEventQuery(event_);
    if (e == cudaErrorNotReady) return false;
    check(e, "cudaEventQuery");
    return true;
  }
  void sync() const override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  [[nodiscard]] std::chrono::nanoseconds since(const event_backend& earlier) const override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, of(earlier), event_), "cudaEventElapsedTime");
    return std::chrono::nanoseconds(static_cast<long>(static_cast<double>(ms) * 1e6));
  }
  static cudaEvent_t of(const event_backend& e) {
    const auto* mine = dynamic_cast<const cuda_event*>(&e);
    if (mine == nullptr) {
      throw error(errc::invalid_argument, "event", "an event of another kind of device");
    }
    return mine->event_;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// All streams that there are, to see whether a device has work.
class stream_list {
 public:
  static stream_list& instance() {
    static stream_list l;
    return l;
  }
  void add(int device, cudaStream_t s) {
    const std::scoped_lock lock(mutex_);
    all_.emplace(s, device);
  }
  void remove(cudaStream_t s) {
    const std::scoped_lock lock(mutex_);
    all_.erase(s);
  }
  bool busy(int device) {
    const std::scoped_lock lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](const auto& s) {
      return s.second == device && cudaStreamQuery(s.first) == cudaErrorNotReady;
    });
  }

 private:
  std::mutex mutex_;
  std::map<cudaStream_t, int> all_;
};

class cuda_recording final : public recording_backend {
 public:
  /// Its first replay on that stream finds it on the device: it would be brought there otherwise,
  /// which may have to wait for all kernels, and with them for ranks that wait for this one.
  cuda_recording(cudaGraph_t graph, cudaStream_t stream) {
    const cudaError_t outcome = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(outcome, "cudaGraphInstantiate");
    check(cudaGraphUpload(graph_, stream), "cudaGraphUpload");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  ~cuda_recording() override { cudaGraphExecDestroy(graph_); }
  cuda_recording(const cuda_recording&) = delete;
  cuda_recording& operator=(const cuda_recording&) = delete;
  void replay(stream_backend& on) override {
    check(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(on.native())), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class cuda_stream final : public stream_backend {
 public:
  explicit cuda_stream(int device) : device_(device) {
    const device_scope here(device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    make_words();
    stream_list::instance().add(device_, stream_);
  }
  /// Somebody else's. It is not in the list: a look at a stream that is being captured, or that was
  /// destroyed, is an error.
  cuda_stream(int device, cudaStream_t theirs) noexcept
      : device_(device), mine_(false), stream_(theirs) {}
  ~cuda_stream() override {
    if (mine_) stream_list::instance().remove(stream_);
    if (words_ != nullptr) {  // kernels may be using them
      cudaStreamSynchronize(stream_);
      kept_memory::instance().release(device_ref::cuda(device_), memory_kind::device, words_);
    }
    if (mine_) cudaStreamDestroy(stream_);
  }
  cuda_stream(const cuda_stream&) = delete;
  cuda_stream& operator=(const cuda_stream&) = delete;

  void sync() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void record(event_backend& e) override {
    check(cudaEventRecord(cuda_event::of(e), stream_), "cudaEventRecord");
  }
  void wait(const event_backend& e) override {
    check(cudaStreamWaitEvent(stream_, cuda_event::of(e), 0), "cudaStreamWaitEvent");
  }
  void copy(void* dst, const void* src, std::size_t bytes) override {
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
  }
  [[nodiscard]] void* native() const noexcept override { return stream_; }
  // Other threads may allocate meanwhile: that is their affair.
  void begin_recording() override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  std::unique_ptr<recording_backend> end_recording() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    return std::make_unique<cuda_recording>(graph, stream_);
  }
  [[nodiscard]] bool is_recording() const override {
    cudaStreamCaptureStatus now{};
    check(cudaStreamIsCapturing(stream_, &now), "cudaStreamIsCapturing");
    return now == cudaStreamCaptureStatusActive;
  }
  device::grid_words* grid_barrier(int grids) override {
    if (grids > most_grids) {
      throw error(errc::does_not_fit, "launch", std::to_string(grids) + " ranks on one GPU");
    }
    if (words_ == nullptr) make_words();
    const auto bytes = static_cast<std::size_t>(grids) * sizeof(device::grid_words);
    check(cudaMemsetAsync(words_, 0, bytes, stream_), "cudaMemsetAsync");
    return words_;
  }

 private:
  void make_words() {
    words_ = static_cast<device::grid_words*>(kept_memory::instance().allocate(
        device_ref::cuda(device_), memory_kind::device, most_grids * sizeof(device::grid_words)));
  }

  static constexpr int most_grids = 256;
  int device_;
  bool mine_ = true;
  cudaStream_t stream_ = nullptr;
  device::grid_words* words_ = nullptr;
};

class cuda_backend final : public backend {
 public:
  std::unique_ptr<stream_backend> make_stream(device_ref d) override {
    return std::make_unique<cuda_stream>(checked(d));
  }
  std::unique_ptr<stream_backend> borrow_stream(device_ref d, void* native) override {
    return std::make_unique<cuda_stream>(checked(d), static_cast<cudaStream_t>(native));
  }
  std::unique_ptr<event_backend> make_event(device_ref d) override {
    return std::make_unique<cuda_event>(checked(d));
  }
  void* allocate(device_ref d, memory_kind kind, std::size_t bytes) override {
    const device_scope here(checked(d));
    return kept_memory::instance().allocate(d, kind, bytes);
  }
  void release(device_ref d, memory_kind kind, void* p) noexcept override {
    kept_memory::instance().release(d, kind, p);
  }
  [[nodiscard]] bool owns(device_ref /*d*/, const void* p, std::size_t bytes) noexcept override {
    const auto known = [](const void* at) { return type_of(at) != cudaMemoryTypeUnregistered; };
    return known(p) && (bytes == 0 || known(static_cast<const std::byte*>(p) + bytes - 1));
  }
  [[nodiscard]] bool on_host(device_ref /*d*/, const void* p,
                             std::size_t /*bytes*/) noexcept override {
    return type_of(p) != cudaMemoryTypeDevice;
  }
  [[nodiscard]] bool reaches(device_ref d, device_ref other) override {
    if (checked(d) == checked(other)) return true;
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, d.ordinal(), other.ordinal()), "cudaDeviceCanAccessPeer");
    if (can == 0) return false;
    const device_scope here(d.ordinal());
    const cudaError_t e = cudaDeviceEnablePeerAccess(other.ordinal(), 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();  // somebody asked before
    } else {
      check(e, "cudaDeviceEnablePeerAccess");
    }
    return true;
  }
  [[nodiscard]] bool busy(device_ref d) noexcept override {
    return stream_list::instance().busy(d.ordinal());
  }
  void copy_now(device_ref d, void* dst, const void* src, std::size_t bytes) override {
    const device_scope here(checked(d));
    if (bytes == 0) return;
    check(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), "cudaMemcpy");
    // It returns when pageable memory may be reused, not when the device has it; and our streams do
    // not wait for the one it runs on.
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

 private:
  static cudaMemoryType type_of(const void* p) noexcept {
    cudaPointerAttributes a{};
    if (cudaPointerGetAttributes(&a, p) == cudaSuccess) return a.type;
    (void)cudaGetLastError();
    return cudaMemoryTypeUnregistered;
  }
  static int checked(device_ref d) {
    if (d.ordinal() < device_count()) return d.ordinal();
    throw error(errc::not_supported, d.name(),
                device_count() == 0 ? absence_reason()
                                    : "there are " + std::to_string(device_count()) + " GPUs");
  }
};

}  // namespace

backend& instance() {
  static cuda_backend b;
  return b;
}

int device_count() noexcept {
  static const int count = [] {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
  }();
  return count;
}

std::string absence_reason() {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice) {
    return "no NVIDIA driver or no GPU here; CROSSWARP_DEVICE=cpu runs the same kernels";
  }
  if (e != cudaSuccess) return cudaGetErrorString(e);
  return n > 0 ? "" : "no CUDA device";
}

std::vector<device_info> list() {
  std::vector<device_info> all;
  for (int i = 0; i < device_count(); ++i) {
    cudaDeviceProp p{};
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    all.push_back({device_ref::cuda(i), p.name, p.multiProcessorCount, p.totalGlobalMem});
  }
  return all;
}

void pin(device_ref d, void* p, std::size_t bytes) {
  const device_scope here(d.ordinal());
  check(cudaHostRegister(p, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
        "cudaHostRegister");
}

void unpin(void* p) noexcept {
  cudaHostUnregister(p);
}

}  // namespace crosswarp::exec::cuda
