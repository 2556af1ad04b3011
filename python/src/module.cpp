// The extension: worlds, memory and collectives by address. What users see is made of this by the
// package's Python, which knows the frameworks; nothing of any framework is compiled here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "rank_world.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace crosswarp::python {
namespace {

using unlocked = nb::call_guard<nb::gil_scoped_release>;
using address = std::uintptr_t;

// ---- errors

PyObject* error_type = nullptr;

/// As it is written in C++: for programs, where to_string() is for people.
const char* name_of(errc code) {
  switch (code) {
    case errc::invalid_argument:
      return "invalid_argument";
    case errc::not_supported:
      return "not_supported";
    case errc::out_of_memory:
      return "out_of_memory";
    case errc::asymmetric:
      return "asymmetric";
    case errc::does_not_fit:
      return "does_not_fit";
    case errc::timeout:
      return "timeout";
    case errc::peer_lost:
      return "peer_lost";
    case errc::aborted:
      return "aborted";
    case errc::refused:
      return "refused";
    case errc::device_fault:
      return "device_fault";
    case errc::system:
      return "system";
  }
  return "unknown";
}

/// crosswarp.Error, with the code's name and the rank to blame.
void raise(const error& e) {
  const nb::object type = nb::borrow(error_type);
  const nb::object raised = type(e.what());
  raised.attr("code") = nb::str(name_of(e.code()));
  raised.attr("peer") = e.peer() < 0 ? nb::none() : nb::object(nb::int_(e.peer()));
  PyErr_SetObject(type.ptr(), raised.ptr());
}

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& e) {
    raise(e);
  }
}

// ---- worlds

world_options options_of(const std::optional<std::string>& device, std::optional<std::size_t> heap,
                         std::optional<double> timeout) {
  world_options o = world_options::from_environment();
  if (device) o.device = device_ref::parse(*device);
  if (heap) o.heap_bytes = *heap;
  if (timeout) {
    o.timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(*timeout * 1e9));
  }
  return o;
}

std::vector<nb::bytes> as_bytes(const std::vector<std::vector<std::byte>>& all) {
  std::vector<nb::bytes> out;
  out.reserve(all.size());
  for (const auto& b : all) out.emplace_back(b.data(), b.size());
  return out;
}

std::vector<nb::bytes> allgather(rank_world& w, const nb::bytes& mine) {
  std::vector<std::vector<std::byte>> all;
  {
    const auto bytes = std::span(static_cast<const std::byte*>(mine.data()), mine.size());
    const nb::gil_scoped_release released;
    all = w.call("World.allgather", [&](world& in) { return in.allgather(bytes); });
  }
  return as_bytes(all);
}

void check_rank(const rank_world& w, int rank) {
  if (rank < 0 || rank >= w.size()) {
    throw nb::value_error(
        ("no rank " + std::to_string(rank) + " among " + std::to_string(w.size())).c_str());
  }
}

/// This rank of the launcher's job, or so many as threads: `rank_main` gets a world for each.
void run_ranks(int ranks, const world_options& options, const nb::callable& rank_main) {
  const nb::gil_scoped_release released;
  crosswarp::run(ranks, options, [&](world& w) {
    const auto mine = std::make_shared<rank_world>(w);
    struct ending {
      rank_world& of;
      ~ending() { of.end(); }
    } const at_end{*mine};
    const nb::gil_scoped_acquire acquired;
    rank_main(mine);
  });
}

// ---- memory

/// Symmetric memory, or the process's own, on a world's device.
class memory {
 public:
  memory(std::shared_ptr<rank_world> of, std::size_t bytes, bool symmetric)
      : of_(std::move(of)), bytes_(bytes) {
    if (symmetric) {
      part_ = of_->allocate(bytes);
    } else {
      own_.emplace(of_->device(), bytes);
    }
  }
  ~memory() {
    if (part_) part_->wanted = false;
  }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool symmetric() const noexcept { return part_ != nullptr; }

  /// Where a rank's is mapped here; null when it is not.
  [[nodiscard]] std::byte* at(int rank) const {
    if (own_) return own_->data();
    check_rank(*of_, rank);
    const nb::gil_scoped_release released;  // another thread may be in a call, and wait for the GIL
    return of_->call("Tensor", [&](world& w) -> std::byte* {
      if (!w.is_mapped(rank)) return nullptr;
      return std::get<symmetric_buffer<std::byte>>(part_->what).data(rank);
    });
  }

  /// As an array that DLPack and buffers know; it keeps `owner`.
  [[nodiscard]] nb::object array(const nb::object& owner, const std::vector<std::size_t>& shape,
                                 int code, int bits, int rank) const {
    const bool gpu = of_->device().kind() == device_kind::cuda;
    const nb::dlpack::dtype type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits),
                                 1};
    const nb::ndarray<nb::array_api> a(at(rank), shape.size(), shape.data(), owner, nullptr, type,
                                       gpu ? nb::device::cuda::value : nb::device::cpu::value,
                                       gpu ? of_->device().ordinal() : 0);
    return nb::cast(a, nb::rv_policy::reference);
  }

 private:
  std::shared_ptr<rank_world> of_;
  std::size_t bytes_;
  std::shared_ptr<part> part_;
  std::optional<buffer<std::byte>> own_;
};

/// What an object says about its memory: (address, shape, contiguous, dtype code, bits, device
/// type, device number, writable). The object has to be kept while the address is used.
nb::tuple describe(const nb::object& of) {
  nb::ndarray<> a;
  const bool writable = nb::try_cast(of, a, false);
  nb::ndarray<nb::ro> fixed;
  if (!writable) {
    fixed = nb::cast<nb::ndarray<nb::ro>>(of);
    a = nb::ndarray<>(fixed);
  }
  nb::list shape;
  bool dense = true;
  std::int64_t next = 1;
  for (std::size_t i = a.ndim(); i-- > 0;) {
    const auto n = static_cast<std::int64_t>(a.shape(i));
    dense = dense && (n == 1 || a.stride(i) == next);
    next *= n;
  }
  for (std::size_t i = 0; i < a.ndim(); ++i) shape.append(a.shape(i));
  return nb::make_tuple(reinterpret_cast<address>(a.data()), nb::tuple(shape), dense || next == 0,
                        static_cast<int>(a.dtype().code),
                        static_cast<int>(a.dtype().bits) * static_cast<int>(a.dtype().lanes),
                        a.device_type(), a.device_id(), writable);
}

// ---- collectives

/// By address; the package has looked at what lies there. A call on a CPU ends when it is done, one
/// on a GPU when it is queued.
class communicator {
 public:
  communicator(std::shared_ptr<rank_world> of, const std::string& algorithm)
      : of_(std::move(of)), part_(of_->make_coll({.algorithm = algorithm_of(algorithm)})) {}

  [[nodiscard]] int rank() const noexcept { return of_->rank(); }
  [[nodiscard]] int size() const noexcept { return of_->size(); }

  void all_reduce(address out, address in, std::size_t count, int type, int op,
                  std::optional<address> on) {
    queue("all_reduce", on, [&](coll& c, stream* s) {
      c.all_reduce(to(out), from(in), count, type_of(type), op_of(op), s);
    });
  }
  void reduce(address out, address in, std::size_t count, int type, int op, int root,
              std::optional<address> on) {
    queue("reduce", on, [&](coll& c, stream* s) {
      c.reduce(to(out), from(in), count, type_of(type), op_of(op), root, s);
    });
  }
  void reduce_scatter(address out, address in, std::size_t count, int type, int op,
                      std::optional<address> on) {
    queue("reduce_scatter", on, [&](coll& c, stream* s) {
      c.reduce_scatter(to(out), from(in), count, type_of(type), op_of(op), s);
    });
  }
  void all_gather(address out, address in, std::size_t bytes, std::optional<address> on) {
    queue("all_gather", on, [&](coll& c, stream* s) { c.all_gather(to(out), from(in), bytes, s); });
  }
  void all_to_all(address out, address in, std::size_t bytes, std::optional<address> on) {
    queue("all_to_all", on, [&](coll& c, stream* s) { c.all_to_all(to(out), from(in), bytes, s); });
  }
  void broadcast(address data, std::size_t bytes, int root, std::optional<address> on) {
    queue("broadcast", on, [&](coll& c, stream* s) { c.broadcast(to(data), bytes, root, s); });
  }
  void gather(address out, address in, std::size_t bytes, int root, std::optional<address> on) {
    queue("gather", on, [&](coll& c, stream* s) { c.gather(to(out), from(in), bytes, root, s); });
  }
  void scatter(address out, address in, std::size_t bytes, int root, std::optional<address> on) {
    queue("scatter", on, [&](coll& c, stream* s) { c.scatter(to(out), from(in), bytes, root, s); });
  }
  using numbers = std::vector<std::size_t>;
  void reduce_scatter_v(address out, address in, const numbers& counts, const numbers& places,
                        int type, int op, std::optional<address> on) {
    queue("reduce_scatter_v", on, [&](coll& c, stream* s) {
      c.reduce_scatter_v(to(out), from(in), counts, places, type_of(type), op_of(op), s);
    });
  }
  void all_gather_v(address out, address in, const numbers& counts, const numbers& places,
                    std::optional<address> on) {
    queue("all_gather_v", on,
          [&](coll& c, stream* s) { c.all_gather_v(to(out), from(in), counts, places, s); });
  }
  void gather_v(address out, address in, const numbers& counts, const numbers& places, int root,
                std::optional<address> on) {
    queue("gather_v", on,
          [&](coll& c, stream* s) { c.gather_v(to(out), from(in), counts, places, root, s); });
  }
  void scatter_v(address out, address in, const numbers& counts, const numbers& places, int root,
                 std::optional<address> on) {
    queue("scatter_v", on,
          [&](coll& c, stream* s) { c.scatter_v(to(out), from(in), counts, places, root, s); });
  }
  void all_to_all_v(address out, address in, const numbers& send_counts, const numbers& send_places,
                    const numbers& receive_counts, const numbers& receive_places,
                    std::optional<address> on) {
    queue("all_to_all_v", on, [&](coll& c, stream* s) {
      c.all_to_all_v(to(out), from(in), {send_counts, send_places, receive_counts, receive_places},
                     s);
    });
  }
  /// Whether it is sent, where it lies, its bytes, and the other rank.
  using message = std::tuple<bool, address, std::size_t, int>;
  void exchange(const std::vector<message>& all, std::optional<address> on) {
    using direction = coll::message::direction;
    std::vector<coll::message> messages;
    messages.reserve(all.size());
    for (const auto& [is_sent, data, bytes, other] : all) {
      messages.push_back({is_sent ? direction::send : direction::receive, to(data), bytes, other});
    }
    queue("exchange", on, [&](coll& c, stream* s) { c.exchange(messages, s); });
  }
  void barrier(std::optional<address> on) {
    queue("barrier", on, [](coll& c, stream* s) { c.barrier(s); });
  }

  void all_reduce_rms_norm(address out, address residual_out, address in, address residual,
                           address weight, std::size_t rows, std::size_t hidden, float epsilon,
                           int type, std::optional<address> on) {
    constexpr const char* name = "all_reduce_rms_norm";
    with_elements(name, type, [&]<class T>(T /*of*/) {
      const device::rms_norm_rows<T> what{static_cast<T*>(to(out)),
                                          static_cast<T*>(to(residual_out)),
                                          static_cast<const T*>(from(in)),
                                          static_cast<const T*>(from(residual)),
                                          static_cast<const T*>(from(weight)),
                                          rows,
                                          hidden,
                                          epsilon};
      queue(name, on, [&](coll& c, stream* s) { c.all_reduce_rms_norm(what, s); });
    });
  }
  /// `scales`: 0 when all rows have `scale`.
  void all_reduce_quantise(address out, address sum, address in, address scales, float scale,
                           std::size_t rows, std::size_t hidden, int type, int narrow,
                           std::optional<address> on) {
    constexpr const char* name = "all_reduce_quantise";
    const auto quantise = [&](auto of, auto into) {
      using T = decltype(of);
      using F = decltype(into);
      const device::quantise_rows<T, F> what{static_cast<F*>(to(out)),
                                             static_cast<T*>(to(sum)),
                                             static_cast<const T*>(from(in)),
                                             static_cast<float*>(to(scales)),
                                             scale,
                                             rows,
                                             hidden};
      queue(name, on, [&](coll& c, stream* s) { c.all_reduce_quantise(what, s); });
    };
    with_elements(name, type, [&](auto of) {
      if (type_of(narrow) == data_type::e4m3) return quantise(of, device::fp8_e4m3{});
      if (type_of(narrow) == data_type::e5m2) return quantise(of, device::fp8_e5m2{});
      throw error(errc::invalid_argument, name, "sums are quantised to e4m3 and e5m2");
    });
  }

  void register_buffer(address data, std::size_t bytes) {
    with("Coll.register_buffer", [&](coll& c) { c.register_buffer(to(data), bytes); });
  }
  void unregister_buffer(address data) {
    with("Coll.unregister_buffer", [&](coll& c) { c.unregister_buffer(to(data)); });
  }
  std::size_t register_recorded() {
    return with("Coll.register_recorded", [](coll& c) { return c.register_recorded(); });
  }
  void forget_recorded() {
    with("Coll.forget_recorded", [](coll& c) { c.forget_recorded(); });
  }

  void check(std::optional<address> on) {
    with_stream("Coll.check", on, [](coll& c, stream* s) { c.check(s); });
  }
  coll::choice explain(address out, address in, std::size_t bytes) {
    return with("Coll.explain", [&](coll& c) { return c.explain(to(out), from(in), bytes); });
  }
  /// A point in a stream that is somebody else's; none while that is being captured.
  std::optional<event> mark(address on) {
    return of_->call("Coll.mark", [&](world& w) -> std::optional<event> {
      stream theirs = stream::borrow(w.options().device, to(on));
      if (theirs.is_recording()) return std::nullopt;
      event here(w.options().device);
      theirs.record(here);
      return here;
    });
  }
  /// Its memory is given back when all ranks have said so. Any thread, also in another's call.
  void close() noexcept { part_->wanted = false; }
  [[nodiscard]] bool closed() const { return !part_->wanted || of_->ended(); }
  /// All ranks have, and it was: the world does not know of it any more.
  [[nodiscard]] bool given_back() const noexcept { return part_.use_count() == 1; }

 private:
  static void* to(address a) noexcept { return reinterpret_cast<void*>(a); }
  static const void* from(address a) noexcept { return reinterpret_cast<const void*>(a); }
  static data_type type_of(int i) {
    if (i < 0 || i > static_cast<int>(data_type::i64)) {
      throw error(errc::invalid_argument, "coll", "no type " + std::to_string(i));
    }
    return static_cast<data_type>(i);
  }
  static coll_op op_of(int i) {
    if (i < 0 || i > static_cast<int>(coll_op::bit_xor)) {
      throw error(errc::invalid_argument, "coll", "no operation " + std::to_string(i));
    }
    return static_cast<coll_op>(i);
  }
  static coll_algorithm algorithm_of(const std::string& name) {
    for (const auto a : {coll_algorithm::automatic, coll_algorithm::push, coll_algorithm::pull,
                         coll_algorithm::two_shot, coll_algorithm::ring}) {
      if (name == to_string(a)) return a;
    }
    throw error(errc::invalid_argument, "Coll",
                "algorithm '" + name + "' is none of automatic, push, pull, two_shot, ring");
  }

  /// `f` of an element of those that sums go on with.
  template <class F>
  static void with_elements(const char* name, int type, F&& f) {
    switch (type_of(type)) {
      case data_type::f16:
        return f(device::half{});
      case data_type::bf16:
        return f(device::bfloat16{});
      case data_type::f32:
        return f(float{});
      default:
        throw error(errc::invalid_argument, name, "elements are half, bfloat16 and float");
    }
  }

  coll& mine(const char* call) {
    if (!part_->wanted) throw error(errc::invalid_argument, call, "the communicator is closed");
    return std::get<coll>(part_->what);
  }
  template <class F>
  std::invoke_result_t<F, coll&> with(const char* name, F&& f) {
    return of_->call(name, [&](world&) { return f(mine(name)); });
  }
  template <class F>
  void with_stream(const char* name, std::optional<address> on, F&& f) {
    of_->call(name, [&](world& w) {
      if (!on) return f(mine(name), nullptr);
      stream theirs = stream::borrow(w.options().device, to(*on));
      f(mine(name), &theirs);
    });
  }
  template <class F>
  void queue(const char* name, std::optional<address> on, F&& f) {
    with_stream(name, on, [&](coll& c, stream* s) {
      f(c, s);
      if (of_->device().kind() == device_kind::cpu) c.check(s);
    });
  }

  std::shared_ptr<rank_world> of_;
  std::shared_ptr<part> part_;
};

// ---- what Python sees of it

void bind_world(nb::module_& m) {
  nb::class_<rank_world>(m, "World")
      .def(nb::new_([](const std::optional<std::string>& device, std::optional<std::size_t> heap,
                       std::optional<double> timeout) {
             const auto options = options_of(device, heap, timeout);
             const nb::gil_scoped_release released;
             return std::make_shared<rank_world>(options);
           }),
           "device"_a.none(), "heap"_a.none(), "timeout"_a.none())
      .def_prop_ro("rank", &rank_world::rank)
      .def_prop_ro("size", &rank_world::size)
      .def_prop_ro("device", [](const rank_world& w) { return w.device().name(); })
      .def_prop_ro("ended", &rank_world::ended)
      .def_prop_ro("in_use", &rank_world::in_use, unlocked())
      .def(
          "barrier",
          [](rank_world& w) { w.call("World.barrier", [](world& in) { in.barrier(); }); },
          unlocked())
      .def(
          "check", [](rank_world& w) { w.call("World.check", [](world& in) { in.check(); }); },
          unlocked())
      .def("allgather", &allgather, "mine"_a)
      .def("abort", &rank_world::abort, "why"_a, unlocked())
      .def(
          "is_mapped",
          [](rank_world& w, int rank) {
            check_rank(w, rank);
            return w.call("World.is_mapped", [&](world& in) { return in.is_mapped(rank); });
          },
          "rank"_a, unlocked())
      .def(
          "path_to",
          [](rank_world& w, int rank) {
            check_rank(w, rank);
            return w.call("World.path_to", [&](world& in) { return in.path_to(rank); });
          },
          "rank"_a, unlocked())
      .def(
          "stream",
          [](rank_world& w) {
            return w.call("World.stream", [](world& in) {
              return reinterpret_cast<address>(in.stream().native());
            });
          },
          unlocked())
      .def("end", &rank_world::end, unlocked());
  m.def(
      "run",
      [](int ranks, const nb::callable& rank_main, const std::optional<std::string>& device,
         std::optional<std::size_t> heap, std::optional<double> timeout) {
        run_ranks(ranks, options_of(device, heap, timeout), rank_main);
      },
      "ranks"_a, "rank_main"_a, "device"_a.none(), "heap"_a.none(), "timeout"_a.none());
  m.def("launched", &launched);
}

void bind_memory(nb::module_& m) {
  nb::class_<memory>(m, "Memory")
      .def(nb::init<std::shared_ptr<rank_world>, std::size_t, bool>(), "world"_a, "bytes"_a,
           "symmetric"_a, unlocked())
      .def_prop_ro("nbytes", &memory::bytes)
      .def_prop_ro("symmetric", &memory::symmetric)
      .def(
          "address",
          [](const memory& a, int rank) { return reinterpret_cast<address>(a.at(rank)); }, "rank"_a)
      .def("array", &memory::array, "owner"_a, "shape"_a, "code"_a, "bits"_a, "rank"_a);
  m.def("describe", &describe, "array"_a);
}

void bind_coll(nb::module_& m) {
  nb::class_<event>(m, "Mark")
      .def_prop_ro("passed", &event::ready)
      .def("wait", &event::sync, unlocked());
  nb::class_<communicator>(m, "Coll")
      .def(nb::init<std::shared_ptr<rank_world>, const std::string&>(), "world"_a, "algorithm"_a,
           unlocked())
      .def_prop_ro("rank", &communicator::rank)
      .def_prop_ro("size", &communicator::size)
      .def("all_reduce", &communicator::all_reduce, "out"_a, "inp"_a, "count"_a, "type"_a, "op"_a,
           "stream"_a.none(), unlocked())
      .def("reduce", &communicator::reduce, "out"_a, "inp"_a, "count"_a, "type"_a, "op"_a, "root"_a,
           "stream"_a.none(), unlocked())
      .def("reduce_scatter", &communicator::reduce_scatter, "out"_a, "inp"_a, "count"_a, "type"_a,
           "op"_a, "stream"_a.none(), unlocked())
      .def("all_gather", &communicator::all_gather, "out"_a, "inp"_a, "bytes"_a, "stream"_a.none(),
           unlocked())
      .def("all_to_all", &communicator::all_to_all, "out"_a, "inp"_a, "bytes"_a, "stream"_a.none(),
           unlocked())
      .def("broadcast", &communicator::broadcast, "data"_a, "bytes"_a, "root"_a, "stream"_a.none(),
           unlocked())
      .def("gather", &communicator::gather, "out"_a, "inp"_a, "bytes"_a, "root"_a,
           "stream"_a.none(), unlocked())
      .def("scatter", &communicator::scatter, "out"_a, "inp"_a, "bytes"_a, "root"_a,
           "stream"_a.none(), unlocked())
      .def("reduce_scatter_v", &communicator::reduce_scatter_v, "out"_a, "inp"_a, "counts"_a,
           "places"_a, "type"_a, "op"_a, "stream"_a.none(), unlocked())
      .def("all_gather_v", &communicator::all_gather_v, "out"_a, "inp"_a, "counts"_a, "places"_a,
           "stream"_a.none(), unlocked())
      .def("gather_v", &communicator::gather_v, "out"_a, "inp"_a, "counts"_a, "places"_a, "root"_a,
           "stream"_a.none(), unlocked())
      .def("scatter_v", &communicator::scatter_v, "out"_a, "inp"_a, "counts"_a, "places"_a,
           "root"_a, "stream"_a.none(), unlocked())
      .def("all_to_all_v", &communicator::all_to_all_v, "out"_a, "inp"_a, "send_counts"_a,
           "send_places"_a, "receive_counts"_a, "receive_places"_a, "stream"_a.none(), unlocked())
      .def("exchange", &communicator::exchange, "messages"_a, "stream"_a.none(), unlocked())
      .def("barrier", &communicator::barrier, "stream"_a.none(), unlocked())
      .def("all_reduce_rms_norm", &communicator::all_reduce_rms_norm, "out"_a, "residual_out"_a,
           "inp"_a, "residual"_a, "weight"_a, "rows"_a, "hidden"_a, "epsilon"_a, "type"_a,
           "stream"_a.none(), unlocked())
      .def("all_reduce_quantise", &communicator::all_reduce_quantise, "out"_a, "sum"_a, "inp"_a,
           "scales"_a, "scale"_a, "rows"_a, "hidden"_a, "type"_a, "narrow"_a, "stream"_a.none(),
           unlocked())
      .def("register_buffer", &communicator::register_buffer, "data"_a, "bytes"_a, unlocked())
      .def("unregister_buffer", &communicator::unregister_buffer, "data"_a, unlocked())
      .def("register_recorded", &communicator::register_recorded, unlocked())
      .def("forget_recorded", &communicator::forget_recorded, unlocked())
      .def("check", &communicator::check, "stream"_a.none(), unlocked())
      .def(
          "explain",
          [](communicator& c, address out, address in, std::size_t bytes) {
            const coll::choice how = [&] {
              const nb::gil_scoped_release released;
              return c.explain(out, in, bytes);
            }();
            return nb::make_tuple(to_string(how.algorithm), how.blocks, how.direct, how.why);
          },
          "out"_a, "inp"_a, "bytes"_a)
      .def("mark", &communicator::mark, "stream"_a, unlocked())
      .def("close", &communicator::close)
      .def_prop_ro("closed", &communicator::closed)
      .def_prop_ro("given_back", &communicator::given_back);
}

}  // namespace
}  // namespace crosswarp::python

NB_MODULE(_crosswarp, m) {
  namespace cwp = crosswarp::python;
  // Frameworks keep references until after the interpreter's end; that is no leak of ours.
  nb::set_leak_warnings(false);
  cwp::error_type = PyErr_NewException("crosswarp.Error", PyExc_RuntimeError, nullptr);
  m.attr("Error") = nb::borrow(cwp::error_type);
  nb::register_exception_translator(cwp::translate);
  cwp::bind_world(m);
  cwp::bind_memory(m);
  cwp::bind_coll(m);
  m.def("cuda_device_count", &crosswarp::cuda_device_count);
  m.def("cuda_absence_reason", &crosswarp::cuda_absence_reason);
  m.attr("__version__") = CROSSWARP_VERSION;
}
