// What the device core asks of the CPU executor. Defined in src/exec/cpu; never called on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crosswarp {
class proxy;
}
namespace crosswarp::device {
enum class scope : std::uint8_t;
}

namespace crosswarp::exec::cpu {

struct block;  // one running block of a CPU kernel

/// Called by a wait between two looks at its condition. Lets other threads of the block, other
/// blocks and other ranks run. True when it is time to look at the clock and for faults.
bool relax(std::uint32_t spin) noexcept;

/// Nanoseconds of a monotone clock; virtual under the deterministic scheduler.
std::uint64_t now_ns() noexcept;

/// The block that the calling kernel thread belongs to; 0 outside of kernels.
std::uint32_t current_block() noexcept;

/// Waits for all threads of the block, or of the calling thread's warp. True when one of them
/// voted true.
bool sync_block(block& b, bool vote) noexcept;
bool sync_warp(block& b, int warp, bool vote) noexcept;

/// 64 bytes of scratch for a broadcast within the block (warp == -1) or within a warp.
std::byte* broadcast_slot(block& b, int warp) noexcept;

/// How an atomic operation touches memory, as the checker sees it.
enum class access : std::uint8_t { load, store, update };

/// Checked builds: called before each atomic operation. A place where the deterministic scheduler
/// may switch threads, and where a scope too narrow for its users is found.
void before_atomic(const void* address, access kind, device::scope scope) noexcept;

/// Checked builds: a kernel's thread has found a mistake of the program. Its launch ends with
/// error(invalid_argument, call, why).
void note_mistake(const char* call, const char* why) noexcept;

/// A kernel waits for its proxy: does some of the proxy's work on the calling thread.
void lend_thread(proxy& p) noexcept;
void end_lending(proxy& p) noexcept;
/// A kernel issued a command and goes on: has it carried out, on this thread or another.
void call_proxy(proxy& p, std::uint32_t queue) noexcept;

}  // namespace crosswarp::exec::cpu
