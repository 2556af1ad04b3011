// Work in order on a device: streams, and events between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "crosswarp/device_ref.hpp"

namespace crosswarp {

namespace exec {
class stream_backend;
class event_backend;
class recording_backend;
}  // namespace exec

/// A point in a stream that other streams and the host can wait for.
class event {
 public:
  explicit event(device_ref d);
  ~event();
  event(event&&) noexcept;
  event& operator=(event&&) noexcept;

  /// True when the work before the last record() is done; also when nothing was recorded yet.
  [[nodiscard]] bool ready() const;
  /// Blocks the host until then.
  void sync() const;
  /// Device time between two recorded events that are ready.
  [[nodiscard]] std::chrono::nanoseconds since(const event& earlier) const;

  [[nodiscard]] exec::event_backend& backend() const noexcept { return *backend_; }

 private:
  std::unique_ptr<exec::event_backend> backend_;
};

/// An ordered queue of work on one device. What is launched runs asynchronously to the host; two
/// streams run concurrently. The destructor waits for its work.
class stream {
 public:
  explicit stream(device_ref d = device_ref::cpu());
  /// In order with what somebody else queues: `native` is a cudaStream_t on `d`, null for its
  /// default stream. It stays theirs, has to outlive this, and may be capturing a graph: the
  /// destructor waits for nothing. A proxy does not look whether it is busy, so a kernel that asks
  /// for the first time after 50 ms may be heard late.
  /// Throws error(not_supported) for a CPU, where nobody else has streams.
  static stream borrow(device_ref d, void* native);
  ~stream();
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;

  [[nodiscard]] device_ref device() const noexcept { return device_; }
  /// Blocks until all work is done. Throws what a CPU kernel threw or the device's fault; the
  /// stream of a world also what world::check() throws.
  void sync();
  /// Marks the work so far.
  void record(event& e);
  /// Work launched from now on waits for `e`; the host does not.
  void wait(const event& e);
  /// Copies between any memory this device can reach, in order with the stream.
  void copy(void* dst, const void* src, std::size_t bytes);

  /// What is queued now is kept and does not run: by a recording, or by somebody's capture.
  [[nodiscard]] bool is_recording() const;

  /// The cudaStream_t, or null on a CPU.
  [[nodiscard]] void* native() const noexcept;
  [[nodiscard]] exec::stream_backend& backend() const noexcept { return *backend_; }
  /// Called at the beginning and at the end of each sync(); for the owner of the stream.
  void watch_sync(std::function<void()> before, std::function<void()> after) {
    before_sync_ = std::move(before);
    after_sync_ = std::move(after);
  }
  /// Called before and after each launch is queued, with the stream that it goes to: launches of
  /// several ranks may share one.
  void watch_launch(std::function<void(stream&)> before, std::function<void(stream&)> after) {
    before_launch_ = std::move(before);
    after_launch_ = std::move(after);
  }
  void begin_launch(stream& on) {
    if (before_launch_) before_launch_(on);
  }
  void end_launch(stream& on) {
    if (after_launch_) after_launch_(on);
  }

 private:
  stream(device_ref d, std::unique_ptr<exec::stream_backend> backend) noexcept;
  device_ref device_;
  std::unique_ptr<exec::stream_backend> backend_;
  std::function<void()> before_sync_;
  std::function<void()> after_sync_;
  std::function<void(stream&)> before_launch_;
  std::function<void(stream&)> after_launch_;
};

/// What is queued on a stream while it is recorded, to be queued again and again at the price of
/// one launch: a CUDA graph on a GPU.
class recording {
 public:
  /// `queue` launches and copies on `s`; nothing of that runs now. On a CPU it may not record or
  /// wait for events. Throws what `queue` throws, and error(not_supported).
  recording(stream& s, const std::function<void()>& queue);
  ~recording();
  recording(recording&&) noexcept;
  recording& operator=(recording&&) noexcept;

  /// Queues all of it on a stream of the same device. What it uses has to live until it has run.
  void replay(stream& s);

 private:
  device_ref device_;
  std::unique_ptr<exec::recording_backend> backend_;
};

}  // namespace crosswarp
