// The five small protocols on every device: ranks as threads, or as processes under a launcher.
#include <gtest/gtest.h>

#include "crosswarp/world_launch.hpp"
#include "protocols/allreduce.hpp"
#include "protocols/byte_stream.hpp"
#include "protocols/link.hpp"
#include "protocols/put_signal.hpp"
#include "protocols/work_queue.hpp"
#include "support/worlds.hpp"

namespace {

using namespace protocols;

/// Runs `kernel(ctx, world, memory, args..., outcome*)` on `ranks` ranks and checks its report.
template <class Memory, class Kernel, class... Args>
void check(int ranks, int threads, Kernel kernel, const std::function<void(Memory&)>& prepare,
           Args... args) {
  on_ranks(ranks, [&](cw::world& w) {
    cw::symmetric_buffer<Memory> mem(w, 1);
    if (prepare) {
      Memory start{};
      prepare(start);
      mem.write(std::span<const Memory>(&start, 1));
      w.barrier();
    }
    cw::buffer<outcome> out(w.options().device, 1);
    cw::launch(w, {.threads = threads}, kernel, w.device(), mem.device(), args..., out.data());
    w.stream().sync();
    const outcome o = out.read()[0];
    EXPECT_EQ(o.waits, status::ok) << to_string(o.waits) << " on rank " << w.rank();
    EXPECT_EQ(o.wrong, 0) << "on rank " << w.rank();
  });
}

/// Each protocol by a thread, by a warp and by a block that is no multiple of a warp.
template <template <class> class Protocol, class Memory, class... Args>
void check_groups(int ranks, const std::function<void(Memory&)>& prepare, Args... args) {
  check<Memory>(ranks, 1, Protocol<by_thread>{}, prepare, args...);
  check<Memory>(ranks, 32, Protocol<by_warp>{}, prepare, args...);
  check<Memory>(ranks, 48, Protocol<by_block>{}, prepare, args...);
}

/// Each rank launches on its own stream, for itself: nothing promises that they run at once, but
/// one small block each on an idle GPU do. What they need is there before the first of them waits.
TEST(Protocol, RanksOnSeparateStreams) {
  on_ranks(4, [](cw::world& w) {
    cw::symmetric_buffer<put_signal_memory> mem(w, 1);
    cw::buffer<outcome> out(w.options().device, 1);
    cw::event done(w.options().device);
    w.barrier();
    cw::launch(w.stream(), {.threads = 64}, put_signal<by_block>{}, w.device(), mem.device(),
               std::uint64_t{0}, 50, out.data());
    w.stream().record(done);
    done.sync();
    w.barrier();
    const outcome o = out.read()[0];
    EXPECT_EQ(o.waits, status::ok) << to_string(o.waits) << " on rank " << w.rank();
    EXPECT_EQ(o.wrong, 0) << "on rank " << w.rank();
  });
}

// 3 rounds before the counters wrap.
constexpr std::uint64_t before_wrap = ~std::uint64_t{0} - 2;
constexpr int ranks = 3;

TEST(Protocol, PutSignalAroundARing) {
  check_groups<put_signal, put_signal_memory>(ranks, nullptr, std::uint64_t{0}, 200);
}

TEST(Protocol, PutSignalAcrossTheWrap) {
  check_groups<put_signal, put_signal_memory>(
      ranks,
      [](put_signal_memory& m) {
        m.full.word = before_wrap;
        m.free.word = before_wrap;
      },
      before_wrap, 20);
}

TEST(Protocol, AddsToOneSignalOrderAllWriters) {
  for (int i = 0; i < 20; ++i) check_groups<add_signal, add_signal_memory>(ranks, nullptr);
}

TEST(Protocol, WorkQueueWithOwnerBits) {
  check_groups<work_queue, work_queue_memory>(2, nullptr, 300);
}

TEST(Protocol, ByteStreamEndsAtAPosition) {
  for (const std::uint64_t total : {0U, 1U, 31U, 32U, 33U, 600U}) {
    check_groups<byte_stream, byte_stream_memory>(ranks, nullptr, total);
  }
}

TEST(Protocol, ByteStreamAcrossTheWrap) {
  check_groups<byte_stream, byte_stream_memory>(
      ranks,
      [](byte_stream_memory& m) {
        m.inbox.from_producer.head = before_wrap;
        m.inbox.own.tail = before_wrap;
        m.outbox.from_consumer.tail = before_wrap;
        m.outbox.own.head = before_wrap;
      },
      std::uint64_t{500});
}

TEST(Protocol, ConsumerCanCloseARing) {
  check<byte_stream_memory>(2, 1, refused_stream{}, nullptr);
}

TEST(Protocol, LinkWithReleaseAndShutdown) {
  for (const int packets : {0, 1, 2, 3, 100}) {
    check_groups<buffered_link, link_memory>(ranks, nullptr, packets);
  }
}

TEST(Protocol, AllreduceWithStartAndEndSync) {
  check_groups<allreduce, allreduce_memory>(ranks, nullptr, std::uint64_t{0}, 200);
}

TEST(Protocol, AllreduceAcrossTheWrap) {
  check_groups<allreduce, allreduce_memory>(
      ranks,
      [](allreduce_memory& m) {
        for (auto& line : m.start) line.word = before_wrap;
        for (auto& line : m.end) line.word = before_wrap;
      },
      before_wrap, 20);
}

}  // namespace
