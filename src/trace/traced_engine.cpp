#include "traced_engine.hpp"

#include <utility>

namespace crosswarp::trace {
namespace {

using namespace proxy_impl;

class traced_engine final : public engine {
 public:
  traced_engine(std::unique_ptr<engine> inner, recorder& to) : inner_(std::move(inner)), to_(to) {}

  [[nodiscard]] capabilities can() const noexcept override { return inner_->can(); }
  std::vector<std::byte> offer_region(std::uint16_t id, const region_info& mine) override {
    return inner_->offer_region(id, mine);
  }
  void install_region(std::uint16_t id, std::vector<std::vector<std::byte>> offers) override {
    inner_->install_region(id, std::move(offers));
  }
  void remove_region(std::uint16_t id) noexcept override { inner_->remove_region(id); }

  bool put(const place& to, const std::byte* from, std::size_t bytes, completion& c) override {
    return noted(engine_call::put, to.pe, bytes, [&] { return inner_->put(to, from, bytes, c); });
  }
  bool put_small(const place& to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    return noted(engine_call::put_small, to.pe, bytes,
                 [&] { return inner_->put_small(to, from, bytes, c); });
  }
  bool get(const place& from, std::byte* to, std::size_t bytes, completion& c) override {
    return noted(engine_call::get, from.pe, bytes, [&] { return inner_->get(from, to, bytes, c); });
  }
  bool atomic(amo op, int width, const place& at, std::uint64_t operand, std::uint64_t comparand,
              std::uint64_t* old, completion& c) override {
    return noted(engine_call::atomic, at.pe, static_cast<std::size_t>(width),
                 [&] { return inner_->atomic(op, width, at, operand, comparand, old, c); });
  }
  bool fence() override {
    return noted(engine_call::fence, -1, 0, [&] { return inner_->fence(); });
  }
  bool flush(completion& c) override {
    return noted(engine_call::flush, -1, 0, [&] { return inner_->flush(c); });
  }
  bool barrier(completion& c) override {
    return noted(engine_call::barrier, -1, 0, [&] { return inner_->barrier(c); });
  }
  bool broadcast(int root, std::byte* to, const std::byte* from, std::size_t bytes,
                 completion& c) override {
    return noted(engine_call::broadcast, root, bytes,
                 [&] { return inner_->broadcast(root, to, from, bytes, c); });
  }
  bool reduce(reduction op, element type, std::byte* to, const std::byte* from, std::size_t count,
              completion& c) override {
    return noted(engine_call::reduce, -1, count * device::size_of(type),
                 [&] { return inner_->reduce(op, type, to, from, count, c); });
  }
  bool progress() override {
    trace_record r = begin(engine_call::progress, -1, 0);
    const bool moved = inner_->progress();
    if (moved) end(r);
    return moved;
  }
  void lose(int pe) override { inner_->lose(pe); }
  [[nodiscard]] int wake_descriptor() const noexcept override { return inner_->wake_descriptor(); }
  bool arm() override { return inner_->arm(); }

 private:
  static trace_record begin(engine_call what, int pe, std::size_t bytes) noexcept {
    trace_record r;
    r.kind = trace_kind::engine;
    r.what = static_cast<std::uint8_t>(what);
    r.pe = pe;
    r.bytes = bytes;
    r.begin = device::trace_ticks();
    return r;
  }
  void end(trace_record& r) noexcept {
    r.end = device::trace_ticks();
    to_.note_in_turn(r);
  }
  /// A call that found no room is noted too: it took its time.
  template <class F>
  bool noted(engine_call what, int pe, std::size_t bytes, F&& f) {
    trace_record r = begin(what, pe, bytes);
    const bool taken = f();
    end(r);
    return taken;
  }

  std::unique_ptr<engine> inner_;
  recorder& to_;
};

}  // namespace

std::unique_ptr<engine> make_traced(std::unique_ptr<engine> inner, recorder& to) {
  return std::make_unique<traced_engine>(std::move(inner), to);
}

}  // namespace crosswarp::trace
