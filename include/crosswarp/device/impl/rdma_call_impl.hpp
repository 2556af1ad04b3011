// Bodies of rdma.hpp: post, ring and wait in one call.
#pragma once

#include "crosswarp/device/impl/rdma_queue_impl.hpp"
#include "crosswarp/device/rdma.hpp"

namespace crosswarp::device::rdma {

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::perform(const G& g, const request& r) const noexcept {
  const posted p = write_entry(g, r);
  if (p.outcome != status::ok) return not_posted(p);
  completion c;
  c.index = p.index;
  c.outcome = publish_and_submit(g, p);
  return c.outcome == status::ok ? wait(g, p) : c;
}

template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::write(const G& g, local_memory from, remote_memory to,
                                                 std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::write, .bytes = bytes, .local = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::write_imm(const G& g, local_memory from,
                                                     remote_memory to, std::uint32_t bytes,
                                                     std::uint32_t imm) const noexcept {
  return perform(
      g, {.op = operation::write_imm, .bytes = bytes, .imm = imm, .local = from, .remote = to});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::read(const G& g, local_memory to, remote_memory from,
                                                std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::read, .bytes = bytes, .local = to, .remote = from});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::send(const G& g, local_memory from,
                                                std::uint32_t bytes) const noexcept {
  return perform(g, {.op = operation::send, .bytes = bytes, .local = from});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::fetch_add(const G& g, local_memory old, remote_memory at,
                                                     std::uint64_t add, int width) const noexcept {
  return perform(g, {.op = operation::fetch_add,
                     .width = static_cast<std::uint8_t>(width),
                     .local = old,
                     .remote = at,
                     .operand = add});
}
template <class P>
template <group G>
CW_FN inline completion basic_endpoint<P>::compare_swap(const G& g, local_memory old,
                                                        remote_memory at, std::uint64_t expected,
                                                        std::uint64_t desired,
                                                        int width) const noexcept {
  return perform(g, {.op = operation::compare_swap,
                     .width = static_cast<std::uint8_t>(width),
                     .local = old,
                     .remote = at,
                     .operand = desired,
                     .comparand = expected});
}

}  // namespace crosswarp::device::rdma
