// Links that lend: packets are the sender's memory, and all else is as on other links.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "crosswarp/world.hpp"
#include "flow/lane.hpp"
#include "support/flow_gate.hpp"
#include "support/flow_graphs.hpp"
#include "support/worlds.hpp"

namespace {

using namespace flow_test;
constexpr std::size_t four = 4 * sizeof(int);
const flow::link_options lends = {.how = flow::transport::lent};

/// In memory of the device, which is what a GPU lends.
cw::buffer<int> owned(int count, int first = 0) {
  return numbers(count, first, cw::memory_kind::device);
}

flow::link one_way(flow::context& ctx, int buffers) {
  return ctx.link(ctx.devices()[0], ctx.devices()[1], four, buffers, lends);
}

TEST(FlowLent, PacketsAreTheSendersMemory) {
  const auto source = owned(10);
  auto ctx = devices(2);
  auto l = one_way(ctx, 2);
  const auto sent = l.send(all_of(source, 77));
  const auto a = l.receive().get();
  const auto b = l.receive().get();
  EXPECT_EQ(a.data(), source.data());
  EXPECT_EQ(b.data(), source.data() + 4) << "split to the packets of the link";
  EXPECT_EQ(b.offset(), four);
  EXPECT_EQ(b.tag(), 77U);
  EXPECT_FALSE(l.receive().ready()) << "there is leave for two";
  EXPECT_EQ(read(a), range(0, 4));
  l.release(b);
  l.release(a);
  EXPECT_FALSE(sent.ready()) << "its last packet is with the receiver";
  EXPECT_NE(l.explain().find("the ends share memory"), std::string::npos) << l.explain();
}

TEST(FlowLent, ASendIsDoneWhenItsLastPacketWasReleasedAndUsed) {
  const auto source = owned(8);
  gate held;
  auto ctx = devices(2);
  auto l = one_way(ctx, 2);
  const auto sent = l.send(all_of(source));
  const auto a = l.receive().get();
  const auto b = l.receive().get();
  l.release(a, held.close());
  EXPECT_FALSE(sent.ready()) << "one is still held";
  l.release(b);
  ASSERT_TRUE(sent.ready());
  EXPECT_FALSE(sent.get().ready()) << "one is still used";
  held.open();
  sent.get().sync();
}

TEST(FlowLent, AReceiverWaitsForWhatTheSourceWaitsFor) {
  auto source = owned(4);
  gate held;
  auto ctx = devices(2);
  auto l = one_way(ctx, 1);
  (void)l.send(all_of(source), held.close());
  const auto got = l.receive().get();
  EXPECT_FALSE(got.arrived().ready());
  source.write(range(40, 44));  // what the held stream would have computed
  held.open();
  EXPECT_EQ(read(got), range(40, 44));
  l.release(got);
}

TEST(FlowLent, EndsAsOtherLinksDo) {
  const auto source = owned(9);
  auto ctx = devices(2);
  auto l = one_way(ctx, 1);
  EXPECT_TRUE(l.send(flow::segment{}).get().ready()) << "of nothing: done at once";
  const auto sent = l.send(all_of(source));
  l.shutdown();
  expect_error([&] { (void)l.send(all_of(source)); }, cw::errc::invalid_argument, "has shut down");
  EXPECT_EQ(drain(l), range(0, 9));
  EXPECT_TRUE(l.receive().get().empty());
  EXPECT_TRUE(sent.get().ready());
  EXPECT_EQ(l.bytes_moved(), 9 * sizeof(int));
}

TEST(FlowLent, EachPacketIsReleasedOnceWhereItCame) {
  const auto source = owned(4);
  auto ctx = devices(2);
  auto a = one_way(ctx, 1);
  auto b = one_way(ctx, 1);
  (void)a.send(all_of(source));
  (void)b.send(all_of(source));
  const auto s = a.receive().get();
  expect_error([&] { b.release(s); }, cw::errc::invalid_argument, "another link");
  a.release(s);
  expect_error([&] { a.release(s); }, cw::errc::invalid_argument, "given back before");
}

TEST(FlowLent, ABroadcastLendsTheSameToAllAndCopiesToOthers) {
  const auto source = owned(4);
  auto ctx = devices(3);
  auto r = ctx.router(1, 3, flow::broadcast());
  auto in = ctx.link(ctx.devices()[0], r, four, 1);
  std::array<flow::link, 2> lent = {ctx.link(r, ctx.devices()[1], four, 1, lends),
                                    ctx.link(r, ctx.devices()[2], four, 1, lends)};
  auto copied = ctx.link(r, ctx.devices()[1], four, 1);
  const auto sent = in.send(all_of(source));
  in.shutdown();
  for (flow::link& l : lent) {
    const auto s = l.receive().get();
    EXPECT_EQ(s.data(), source.data());
    EXPECT_FALSE(sent.ready());
    l.release(s);
  }
  EXPECT_TRUE(sent.ready()) << "what is copied need not be released";
  EXPECT_EQ(drain(copied), range(0, 4));
  EXPECT_TRUE(lent[0].receive().get().empty());
  sent.get().sync();
}

TEST(FlowLent, OwnBuffersComeBackWhenTheyAreReleased) {
  auto ctx = devices(2, std::chrono::milliseconds(300));
  auto l = one_way(ctx, 1);
  const std::array values = {owned(4, 0), owned(4, 4)};
  cw::stream s(test_device());  // ends before them: nobody waits for copies of what is withdrawn
  const auto send = [&](const cw::buffer<int>& from) {
    const auto mine = l.send_buffer(s);
    s.copy(mine.data(), from.data(), four);
    (void)l.send({mine.data(), four}, s);
  };
  send(values[0]);
  EXPECT_EQ(take(l), range(0, 4));
  send(values[1]);
  expect_error([&] { (void)l.send_buffer(s); }, cw::errc::timeout, "300 ms");
}

/// What is lent is sent on without a copy: each keeps its packet until the next has given it back.
TEST(FlowLent, GoesThroughAChain) {
  const auto source = owned(20);
  auto ctx = devices(3);
  auto first = one_way(ctx, 2);
  auto second = ctx.link(ctx.devices()[1], ctx.devices()[2], four, 1, lends);
  std::thread between([&] {
    for (;;) {
      const auto got = first.receive().get();
      if (got.empty()) break;
      first.release(got, second.send({got.data(), got.bytes()}, got.arrived()).get());
    }
    second.shutdown();
  });
  const auto sent = first.send(all_of(source));
  first.shutdown();
  int next = 0;
  for (;;) {
    const auto got = second.receive().get();
    if (got.empty()) break;
    EXPECT_EQ(got.data(), source.data() + next);
    next += static_cast<int>(got.as<int>().size());
    second.release(got);
  }
  between.join();
  EXPECT_EQ(next, 20);
  sent.get().sync();
}

TEST(FlowLent, IsRefusedWhereEndsShareNoMemory) {
  using crosswarp::flow::impl::choose_way;
  const auto bad = cw::errc::invalid_argument;
  const auto lent = flow::transport::lent;
  const auto cpu = cw::device_ref::cpu();
  const auto a = cw::device_ref::cuda(0);
  const auto b = cw::device_ref::cuda(1);
  const auto yes = [] { return true; };
  EXPECT_EQ(choose_way(cpu, {}, lent, yes).how, lent);
  EXPECT_EQ(choose_way({}, {}, lent, yes).how, lent);
  EXPECT_EQ(choose_way(a, a, lent, yes).how, lent);
  expect_error([&] { (void)choose_way({}, a, lent, yes); }, bad, "the host and cuda:0 do not");
  expect_error([&] { (void)choose_way(a, {}, lent, yes); }, bad, "cuda:0 and the host do not");
  expect_error([&] { (void)choose_way(a, b, lent, yes); }, bad, "cuda:0 and cuda:1 do not");
  if (cw::launched()) return;
  on_ranks(2, [&](cw::world& w) {
    flow::context ctx(w);
    expect_error([&] { (void)ctx.link(ctx.devices()[0], ctx.devices()[0], four, 1, lends); }, bad,
                 "leave the transport automatic");
  });
}

TEST(FlowLent, WaitsEndAtTheDeadlineAndWhenTheContextIsAborted) {
  const auto source = owned(8);
  auto ctx = devices(2, std::chrono::milliseconds(20));
  auto l = one_way(ctx, 1);
  const auto sent = l.send(all_of(source));
  const auto got = l.receive().get();
  expect_error([&] { (void)sent.get(); }, cw::errc::timeout, "20 ms");
  auto wide = one_way(ctx, 4);
  const auto all = wide.send(all_of(source));
  (void)wide.receive().get();
  (void)wide.receive().get();
  expect_error([&] { (void)all.get(); }, cw::errc::timeout, "if lent, not all released");
  l.release(got);
  EXPECT_FALSE(l.receive().ready()) << "the rest was withdrawn";
  const auto again = l.send(all_of(source));
  ctx.abort("enough");
  expect_error([&] { (void)again.get(); }, cw::errc::aborted, "enough");
}

}  // namespace
