// Which processor runs a kernel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crosswarp {

class schedule;

enum class device_kind { cpu, cuda };

/// Names a processor; owns nothing. Everything that can be done on one device can be done on the
/// others: a kernel does not know which it runs on.
class device_ref {
 public:
  /// CPU threads of this process.
  static device_ref cpu() noexcept { return {device_kind::cpu, 0, nullptr}; }
  /// A CUDA device. Nothing is checked until it is used.
  static device_ref cuda(int ordinal = 0) noexcept { return {device_kind::cuda, ordinal, nullptr}; }
  /// CPU threads whose interleaving `s` decides, for tests; `s` must outlive all use.
  static device_ref scheduled(schedule& s) noexcept { return {device_kind::cpu, 0, &s}; }
  /// "cpu", "cuda", "cuda:1", or "auto": a GPU when there is one, else the CPU.
  static device_ref parse(std::string_view text);

  [[nodiscard]] device_kind kind() const noexcept { return kind_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] schedule* scheduler() const noexcept { return schedule_; }
  /// "cpu", "cuda:0".
  [[nodiscard]] std::string name() const;

  friend bool operator==(const device_ref&, const device_ref&) = default;

 private:
  device_ref(device_kind kind, int ordinal, schedule* s) noexcept
      : kind_(kind), ordinal_(ordinal), schedule_(s) {}
  device_kind kind_;
  int ordinal_;
  schedule* schedule_;
};

/// What is known about a device.
struct device_info {
  device_ref device;
  std::string description;  ///< "AMD EPYC ...", "NVIDIA H200"
  int multiprocessors = 0;  ///< cores of a CPU
  std::size_t memory_bytes = 0;
};

/// All devices of this machine that this build can use; the CPU first, always.
std::vector<device_info> devices();
/// CUDA devices that can be used now; 0 without a driver or in a build without CUDA.
int cuda_device_count() noexcept;
/// Why there are none, for people; empty when there are some.
std::string cuda_absence_reason();

}  // namespace crosswarp
