#include "stager.hpp"

namespace crosswarp::socket_impl {

stager::stager(device_ref d, std::byte* image, std::size_t bytes)
    : image_(image), rings_(d, bytes) {
  if (d.kind() != device_kind::cpu) copies_.emplace(d);
}

void stager::bring(std::uint64_t offset, std::uint64_t bytes) {
  copy(rings() + offset, image_ + offset, bytes);
}

void stager::fetch(std::uint64_t offset, std::uint64_t bytes) {
  copy(image_ + offset, rings() + offset, bytes);
}

void stager::copy(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (!copies_) return exec::copy_now(rings_.device(), to, from, bytes);
  const std::lock_guard lock(guard_);
  copies_->copy(to, from, bytes);
  copies_->sync();
}

}  // namespace crosswarp::socket_impl
