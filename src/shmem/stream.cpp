#include <string>

#include "crosswarp/error.hpp"
#include "crosswarp/launch.hpp"
#include "crosswarp/shmem_stream.hpp"

namespace crosswarp {
namespace {

using device::compare;
using device::element;
using device::kernel_context;
using device::reduction;
using device::signal_op;

/// One thread of the block notes what went wrong; kernels of a stream come one after the other.
CW_FN inline void note(const kernel_context& k, status* outcome, status s) {
  if (k.thread_index() == 0 && s > *outcome) *outcome = s;
}

struct put_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        std::byte* dest, const std::byte* source, std::size_t bytes, int pe) const {
    note(k, out, sh.put(k.block(), dest, source, bytes, pe));
  }
};
struct get_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        std::byte* dest, const std::byte* source, std::size_t bytes, int pe) const {
    note(k, out, sh.get(k.block(), dest, source, bytes, pe));
  }
};
struct put_signal_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        std::byte* dest, const std::byte* source, std::size_t bytes,
                        std::uint64_t* signal, std::uint64_t value, signal_op how, int pe) const {
    note(k, out, sh.put_signal(k.block(), dest, source, bytes, signal, value, how, pe));
  }
};
struct quiet_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out) const {
    note(k, out, sh.quiet(k.block()));
  }
};
struct wait_kernel {
  template <class T>
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out, T* word,
                        compare how, T value) const {
    note(k, out, sh.wait_until(k.block(), word, how, value));
  }
};
struct meet_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        bool quiet) const {
    note(k, out, quiet ? sh.barrier(k.block()) : sh.sync(k.block()));
  }
};
struct broadcast_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        std::byte* dest, const std::byte* source, std::size_t bytes,
                        int root) const {
    note(k, out, sh.broadcast(k.block(), dest, source, bytes, root));
  }
};

enum class exchange { fcollect, collect, alltoall };
struct exchange_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        exchange what, std::byte* dest, const std::byte* source,
                        std::size_t bytes) const {
    const auto g = k.block();
    status s = status::invalid;
    switch (what) {
      case exchange::fcollect:
        s = sh.fcollect(g, dest, source, bytes);
        break;
      case exchange::collect:
        s = sh.collect(g, dest, source, bytes);
        break;
      case exchange::alltoall:
        s = sh.alltoall(g, dest, source, bytes);
        break;
    }
    note(k, out, s);
  }
};

/// An operation that is known at run time: one kernel for all of them, not one for each.
struct any_operation {
  reduction what;

  template <class T>
  CW_FN T operator()(T a, T b) const noexcept {
    switch (what) {
      case reduction::sum:
        return device::shmem_op::sum{}(a, b);
      case reduction::prod:
        return device::shmem_op::prod{}(a, b);
      case reduction::min:
        return device::shmem_op::min{}(a, b);
      case reduction::max:
        return device::shmem_op::max{}(a, b);
      default:
        break;
    }
    if constexpr (std::is_integral_v<T>) {
      switch (what) {
        case reduction::bit_and:
          return device::shmem_op::bit_and{}(a, b);
        case reduction::bit_or:
          return device::shmem_op::bit_or{}(a, b);
        case reduction::bit_xor:
          return device::shmem_op::bit_xor{}(a, b);
        default:
          break;
      }
    }
    return a;
  }
};

template <class T>
struct reduce_kernel {
  CW_FN void operator()(const kernel_context& k, const device::shmem& sh, status* out,
                        reduction what, T* dest, const T* source, std::size_t count) const {
    note(k, out, sh.reduce(k.block(), any_operation{what}, dest, source, count));
  }
};

template <class T>
bool knows(reduction what) noexcept {
  switch (what) {
    case reduction::sum:
    case reduction::prod:
    case reduction::min:
    case reduction::max:
      return true;
    case reduction::bit_and:
    case reduction::bit_or:
    case reduction::bit_xor:
      return std::is_integral_v<T>;
  }
  return false;
}

/// A CPU copies best with one thread.
launch_shape shape_for(const stream& on) {
  return {.threads = on.device().kind() == device_kind::cpu ? 1 : 256};
}

template <class T>
void queue_reduce(stream& on, const device::shmem& context, status* outcome, reduction op,
                  void* dest, const void* source, std::size_t count) {
  if (!knows<T>(op)) {
    throw error(errc::invalid_argument, "shmem_stream::reduce",
                "no such operation on elements of this type");
  }
  launch(on, shape_for(on), reduce_kernel<T>{}, context, outcome, op, static_cast<T*>(dest),
         static_cast<const T*>(source), count);
}

}  // namespace

shmem_stream::shmem_stream(const device::shmem& context, stream& on)
    : context_(context), on_(&on), outcome_(on.device(), 1, memory_kind::pinned) {}

void shmem_stream::put(void* dest, const void* source, std::size_t bytes, int pe) {
  launch(*on_, shape_for(*on_), put_kernel{}, context_, outcome_.data(),
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes, pe);
}
void shmem_stream::get(void* dest, const void* source, std::size_t bytes, int pe) {
  launch(*on_, shape_for(*on_), get_kernel{}, context_, outcome_.data(),
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes, pe);
}
void shmem_stream::put_signal(void* dest, const void* source, std::size_t bytes,
                              std::uint64_t* signal, std::uint64_t value, signal_op how, int pe) {
  launch(*on_, shape_for(*on_), put_signal_kernel{}, context_, outcome_.data(),
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes, signal, value,
         how, pe);
}
void shmem_stream::signal(std::uint64_t* signal, std::uint64_t value, signal_op how, int pe) {
  // After all that the stream did before, as a put with signal is.
  put_signal(nullptr, nullptr, 0, signal, value, how, pe);
}
void shmem_stream::quiet() {
  launch(*on_, {}, quiet_kernel{}, context_, outcome_.data());
}

void shmem_stream::wait_until(std::int32_t* word, compare how, std::int32_t value) {
  launch(*on_, {}, wait_kernel{}, context_, outcome_.data(), word, how, value);
}
void shmem_stream::wait_until(std::uint32_t* word, compare how, std::uint32_t value) {
  launch(*on_, {}, wait_kernel{}, context_, outcome_.data(), word, how, value);
}
void shmem_stream::wait_until(std::int64_t* word, compare how, std::int64_t value) {
  launch(*on_, {}, wait_kernel{}, context_, outcome_.data(), word, how, value);
}
void shmem_stream::wait_until(std::uint64_t* word, compare how, std::uint64_t value) {
  launch(*on_, {}, wait_kernel{}, context_, outcome_.data(), word, how, value);
}

void shmem_stream::sync() {
  launch(*on_, shape_for(*on_), meet_kernel{}, context_, outcome_.data(), false);
}
void shmem_stream::barrier() {
  launch(*on_, shape_for(*on_), meet_kernel{}, context_, outcome_.data(), true);
}
void shmem_stream::broadcast(void* dest, const void* source, std::size_t bytes, int root) {
  launch(*on_, shape_for(*on_), broadcast_kernel{}, context_, outcome_.data(),
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes, root);
}
void shmem_stream::fcollect(void* dest, const void* source, std::size_t bytes) {
  launch(*on_, shape_for(*on_), exchange_kernel{}, context_, outcome_.data(), exchange::fcollect,
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes);
}
void shmem_stream::collect(void* dest, const void* source, std::size_t bytes) {
  launch(*on_, shape_for(*on_), exchange_kernel{}, context_, outcome_.data(), exchange::collect,
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes);
}
void shmem_stream::alltoall(void* dest, const void* source, std::size_t bytes) {
  launch(*on_, shape_for(*on_), exchange_kernel{}, context_, outcome_.data(), exchange::alltoall,
         static_cast<std::byte*>(dest), static_cast<const std::byte*>(source), bytes);
}

void shmem_stream::reduce(reduction op, element type, void* dest, const void* source,
                          std::size_t count) {
  switch (type) {
    case element::i8:
      return queue_reduce<std::int8_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::i16:
      return queue_reduce<std::int16_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::i32:
      return queue_reduce<std::int32_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::i64:
      return queue_reduce<std::int64_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::u8:
      return queue_reduce<std::uint8_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::u16:
      return queue_reduce<std::uint16_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::u32:
      return queue_reduce<std::uint32_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::u64:
      return queue_reduce<std::uint64_t>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::f32:
      return queue_reduce<float>(*on_, context_, outcome_.data(), op, dest, source, count);
    case element::f64:
      return queue_reduce<double>(*on_, context_, outcome_.data(), op, dest, source, count);
  }
  throw error(errc::invalid_argument, "shmem_stream::reduce", "no such type of elements");
}

void shmem_stream::check() {
  on_->sync();
  const status s = *outcome_.data();
  *outcome_.data() = status::ok;
  switch (s) {
    case status::ok:
      return;
    case status::invalid:
      throw error(errc::invalid_argument, "shmem_stream",
                  "no such PE, memory that is not symmetric, or PEs that called something else");
    case status::timeout:
      throw error(errc::timeout, "shmem_stream", "waited in vain");
    case status::peer_lost:
      throw error(errc::peer_lost, "shmem_stream", "a PE died");
    case status::aborted:
      throw error(errc::aborted, "shmem_stream", "a PE gave up");
    default:
      throw error(errc::not_supported, "shmem_stream", to_string(s));
  }
}

}  // namespace crosswarp
