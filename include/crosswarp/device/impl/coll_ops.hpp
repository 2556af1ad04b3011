// What reductions do with two elements.
#pragma once

#include "crosswarp/device/coll.hpp"

namespace crosswarp::device::coll_ops {

namespace impl {

/// Integers as unsigned ones: they wrap around instead of being undefined.
template <class A, class F>
CW_FN constexpr A wrapping(A a, A b, const F& f) noexcept {
  if constexpr (std::is_integral_v<A>) {
    using u = std::common_type_t<std::make_unsigned_t<A>, unsigned>;
    return static_cast<A>(f(static_cast<u>(a), static_cast<u>(b)));
  } else {
    return f(a, b);
  }
}

template <class A>
CW_FN inline bool is_negative(A a) noexcept {
  if constexpr (std::is_floating_point_v<A>) {
    using bits = std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t>;
    return device::impl::bits_as<bits>(a) < 0;
  } else {
    return a < 0;
  }
}

template <class A>
CW_FN inline bool is_nan(A a) noexcept {
  if constexpr (std::is_same_v<A, float>) {
    return (device::impl::bits_as<std::uint32_t>(a) << 1U) > 0xff000000U;
  } else if constexpr (std::is_same_v<A, double>) {
    return (device::impl::bits_as<std::uint64_t>(a) << 1U) > 0xffe0000000000000U;
  } else {
    return false;
  }
}

/// What is done when all elements are together.
struct as_it_is {
  template <class A>
  CW_FN static constexpr A finish(A a, int /*ranks*/) noexcept {
    return a;
  }
};

}  // namespace impl

struct sum : impl::as_it_is {
  static constexpr coll_op what = coll_op::sum;
  template <class A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return impl::wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct avg {
  static constexpr coll_op what = coll_op::avg;
  template <class A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return sum{}(a, b);
  }
  template <class A>
  CW_FN static constexpr A finish(A a, int ranks) noexcept {
    return static_cast<A>(a / static_cast<std::common_type_t<A, int>>(ranks));
  }
};
struct prod : impl::as_it_is {
  static constexpr coll_op what = coll_op::prod;
  template <class A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return impl::wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct min : impl::as_it_is {
  static constexpr coll_op what = coll_op::min;
  template <class A>
  CW_FN A operator()(A a, A b) const noexcept {
    if (a == b) return impl::is_negative(a) ? a : b;
    return a < b || impl::is_nan(a) ? a : b;
  }
};
struct max : impl::as_it_is {
  static constexpr coll_op what = coll_op::max;
  template <class A>
  CW_FN A operator()(A a, A b) const noexcept {
    if (a == b) return impl::is_negative(a) ? b : a;
    return a > b || impl::is_nan(a) ? a : b;
  }
};
struct bit_and : impl::as_it_is {
  static constexpr coll_op what = coll_op::bit_and;
  template <std::integral A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return a & b;
  }
};
struct bit_or : impl::as_it_is {
  static constexpr coll_op what = coll_op::bit_or;
  template <std::integral A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return a | b;
  }
};
struct bit_xor : impl::as_it_is {
  static constexpr coll_op what = coll_op::bit_xor;
  template <std::integral A>
  CW_FN constexpr A operator()(A a, A b) const noexcept {
    return a ^ b;
  }
};

/// Bit operations are for integers: who makes one of floats gets the first operand.
struct any {
  coll_op what = coll_op::sum;

  template <class A>
  CW_FN A operator()(A a, A b) const noexcept {
    switch (what) {
      case coll_op::sum:
      case coll_op::avg:
        return sum{}(a, b);
      case coll_op::prod:
        return prod{}(a, b);
      case coll_op::min:
        return min{}(a, b);
      case coll_op::max:
        return max{}(a, b);
      default:
        break;
    }
    if constexpr (std::is_integral_v<A>) {
      if (what == coll_op::bit_and) return bit_and{}(a, b);
      if (what == coll_op::bit_or) return bit_or{}(a, b);
      return bit_xor{}(a, b);
    }
    return a;
  }
  template <class A>
  CW_FN A finish(A a, int ranks) const noexcept {
    return what == coll_op::avg ? avg::finish(a, ranks) : a;
  }
};

}  // namespace crosswarp::device::coll_ops
