// Gradients of a model that several ranks train: added up by the host between kernels, and by a
// kernel that goes on with the sum itself.
//
//   ./09_allreduce                       four ranks as threads
//   crosswarp run -n 3 ./09_allreduce    processes
//
// Both ways give the same bits: reductions are made in the order of ranks, whatever the algorithm.
#include <cstdio>
#include <cstring>

#include "crosswarp/coll.hpp"
#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;
using dev::bfloat16;

constexpr std::size_t elements = 10'000;

/// A rank's gradient: something that only it has.
struct compute {
  CW_FN void operator()(const dev::kernel_context& k, int rank, bfloat16* gradient) const {
    const auto step = static_cast<std::size_t>(k.grid().size());
    for (auto i = static_cast<std::size_t>(k.grid().rank()); i < elements; i += step) {
      gradient[i] =
          dev::narrow<bfloat16>(0.001F * static_cast<float>(i % 97) * static_cast<float>(rank + 1));
    }
  }
};

/// One kernel for all of it: the average of the gradients, then the step that uses it.
struct average_and_step {
  CW_FN void operator()(const dev::kernel_context& k, const dev::coll& ranks,
                        const bfloat16* gradient, bfloat16* average, float* weights,
                        cw::status* out) const {
    const auto block = k.block();
    const cw::status s = ranks.all_reduce(block, average, gradient, elements, dev::coll_ops::avg{});
    const auto step = static_cast<std::size_t>(block.size());
    for (auto i = static_cast<std::size_t>(block.rank()); i < elements; i += step) {
      weights[i] -= 0.1F * dev::widen(average[i]);
    }
    if (block.rank() == 0) *out = s;
  }
};

void train(cw::world& w) {
  cw::coll ranks(w);
  const cw::device_ref device = w.options().device;
  const cw::launch_shape shape{.threads = 64};
  cw::buffer<bfloat16> gradient(device, elements);
  cw::buffer<bfloat16> by_host(device, elements);
  cw::buffer<bfloat16> by_kernel(device, elements);
  cw::buffer<float> weights(device, elements);
  cw::buffer<cw::status> outcome(device, 1);
  w.barrier();  // nobody allocates while another's kernel waits on the same GPU

  cw::launch(w.stream(), shape, compute{}, w.rank(), gradient.data());
  ranks.all_reduce(by_host.data(), static_cast<const bfloat16*>(gradient.data()), elements,
                   cw::coll_op::avg);
  ranks.check();  // waits for the stream; throws when ranks did not agree or one is lost

  cw::launch(w, shape, average_and_step{}, ranks.device(),
             static_cast<const bfloat16*>(gradient.data()), by_kernel.data(), weights.data(),
             outcome.data());
  w.stream().sync();
  w.barrier();

  const auto a = by_host.read();
  const auto b = by_kernel.read();
  const bool same = outcome.read().front() == cw::status::ok &&
                    std::memcmp(a.data(), b.data(), elements * sizeof(bfloat16)) == 0;
  if (!same) throw cw::error(cw::errc::system, "09_allreduce", "the two ways differ");
  if (w.rank() == 0) {
    const auto how = ranks.explain(by_host.data(), gradient.data(), elements * sizeof(bfloat16));
    std::printf(
        "%d ranks, %zu gradients averaged on a stream (%s: %s) and in a kernel: same bits\n",
        w.size(), elements, to_string(how.algorithm), how.why.c_str());
  }
}

int main() {
  try {
    cw::run(4, train);
  } catch (const cw::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
