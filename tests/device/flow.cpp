// What links, segments and routers promise, each promise by itself.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>

#include "flow/lane.hpp"
#include "support/flow_gate.hpp"
#include "support/flow_graphs.hpp"

namespace {

using namespace flow_test;
constexpr std::size_t four = 4 * sizeof(int);

// ---- sending

TEST(FlowSend, MovesOnlyIntoPostedBuffers) {
  const auto source = numbers(10);
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  const auto sent = l.send(all_of(source));
  EXPECT_EQ(l.bytes_moved(), four) << "one buffer is posted";
  EXPECT_FALSE(sent.ready());
  EXPECT_EQ(take(l), range(0, 4));
  EXPECT_EQ(l.bytes_moved(), 2 * four);
  EXPECT_FALSE(sent.ready());
  EXPECT_EQ(take(l), range(4, 8));
  EXPECT_TRUE(sent.ready()) << "the rest has its buffer";
  EXPECT_EQ(take(l), range(8, 10));
  EXPECT_EQ(l.bytes_moved(), 10 * sizeof(int));
  sent.get().sync();
}

TEST(FlowSend, SplitsToTheSizesOfTheReceiversBuffers) {
  const auto source = numbers(7);
  auto ctx = devices(3);
  auto r = ctx.router(1, 2, flow::any_available());
  auto in = ctx.link(flow::host, r, four, 1);
  auto small = ctx.link(r, ctx.devices()[0], 2 * sizeof(int), 1);
  auto large = ctx.link(r, ctx.devices()[1], 5 * sizeof(int), 1);
  const auto sent = in.send(all_of(source, 77));
  ASSERT_TRUE(sent.ready());
  const auto a = small.receive().get();
  const auto b = large.receive().get();
  EXPECT_EQ(read(a), range(0, 2));
  EXPECT_EQ(read(b), range(2, 7));
  EXPECT_EQ(a.offset(), 0U);
  EXPECT_EQ(b.offset(), 2 * sizeof(int));
  EXPECT_EQ(b.tag(), 77U) << "the tag comes with every part";
  EXPECT_EQ(a.tag(), 77U);
  EXPECT_EQ(a.source(), 0);
}

TEST(FlowSend, IsQueuedAtOnceAndWaitsForItsSourceOnTheCopyStream) {
  auto source = numbers(4);
  gate held;
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  const auto sent = l.send(all_of(source), held.close());
  ASSERT_TRUE(sent.ready()) << "its copies are queued, whatever the source waits for";
  const auto received = l.receive();
  ASSERT_TRUE(received.ready()) << "it is matched";
  EXPECT_FALSE(sent.get().ready()) << "the copy waits";
  EXPECT_FALSE(received.get().arrived().ready());
  source.write(range(40, 44));  // what the held stream would have computed
  held.open();
  EXPECT_EQ(read(received.get()), range(40, 44));
  sent.get().sync();
  EXPECT_TRUE(sent.get().ready());
}

TEST(FlowSend, OfNothingIsDoneAtOnceAndNotHeardOf) {
  auto ctx = devices(1);
  auto l = ctx.link(flow::host, ctx.devices()[0], four, 1);
  const auto sent = l.send(flow::segment{});
  ASSERT_TRUE(sent.ready());
  EXPECT_TRUE(sent.get().ready());
  EXPECT_FALSE(l.receive().ready());
  EXPECT_EQ(l.bytes_moved(), 0U);
}

TEST(FlowSend, AfterShutdownIsAnError) {
  const auto source = numbers(4);
  auto ctx = devices(1);
  auto l = ctx.link(flow::host, ctx.devices()[0], four, 1);
  l.shutdown();
  l.shutdown();  // changes nothing
  expect_error([&] { (void)l.send(all_of(source)); }, cw::errc::invalid_argument, "has shut down");
  expect_error([&] { (void)l.send(flow::segment{}); }, cw::errc::invalid_argument, "has shut down");
}

TEST(FlowSend, KeepsOrderBetweenTwoEnds) {
  const auto first = numbers(10);
  const auto second = numbers(10, 10);
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], 3 * sizeof(int), 3);
  (void)l.send(all_of(first));
  (void)l.send(all_of(second));
  l.shutdown();
  EXPECT_EQ(drain(l), range(0, 20));
}

TEST(FlowSend, OwnBuffersAreFilledOnAStreamAndUsedAgain) {
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 2);
  cw::stream s(test_device());
  std::vector<int> got;
  for (int i = 0; i < 6; ++i) {
    const auto source = numbers(4, 4 * i);
    const auto mine = l.send_buffer(s);
    ASSERT_EQ(mine.size(), four);
    s.copy(mine.data(), source.data(), four);
    (void)l.send({mine.data(), four}, s);
    s.sync();
    const auto part = take(l);
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(got, range(0, 24));
  (void)l.send_buffer(s);
  const auto last = l.send_buffer(s);
  expect_error([&] { (void)l.send_buffer(s); }, cw::errc::invalid_argument, "all 2 buffers");
  (void)last;
}

TEST(FlowSend, AnOwnBufferIsNotWrittenBeforeItsLastSendIsDone) {
  const auto first = numbers(4);
  const auto second = numbers(4, 4);
  gate held;
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  cw::stream s(test_device());
  auto mine = l.send_buffer(s);
  s.copy(mine.data(), first.data(), four);
  s.sync();
  (void)l.send({mine.data(), four}, held.close());
  mine = l.send_buffer(s);  // the host goes on, the stream waits
  s.copy(mine.data(), second.data(), four);
  EXPECT_FALSE(flow::completion(s).ready());
  held.open();
  EXPECT_EQ(take(l), range(0, 4));
  (void)l.send({mine.data(), four}, s);
  EXPECT_EQ(take(l), range(4, 8));
}

TEST(FlowSend, AnOwnBufferIsNotGivenOutWhileAnyPieceOfItIsQueued) {
  auto ctx = devices(3, std::chrono::milliseconds(50));
  auto r = ctx.router(1, 2, flow::user_defined([](const flow::segment& s, int, const auto&) {
                        return std::vector<int>{static_cast<int>(s.tag)};
                      }));
  auto in = ctx.link(ctx.devices()[0], r, 2 * four, 1);
  auto slow = ctx.link(r, ctx.devices()[1], four, 1);
  auto fast = ctx.link(r, ctx.devices()[2], four, 2);
  cw::stream s(test_device());
  const auto mine = in.send_buffer(s);
  (void)in.send({mine.data(), four, 0});  // fills the one buffer of `slow`
  (void)in.send({mine.data(), four, 0});  // stays queued
  const auto done = in.send({mine.data() + four, four, 1});
  EXPECT_TRUE(done.ready());
  expect_error([&] { (void)in.send_buffer(s); }, cw::errc::timeout, "50 ms");
  (void)fast;
}

TEST(FlowSend, TakesVectorsAndArrays) {
  auto ctx = devices(1);
  auto l = ctx.link(flow::host, flow::host, four, 2);
  const std::vector<int> values = range(0, 4);
  std::array<int, 2> two = {4, 5};
  (void)l.send(values);
  (void)l.send({two, 7});
  EXPECT_EQ(take(l), range(0, 4));
  const auto part = l.receive().get();
  EXPECT_EQ(part.tag(), 7U);
  EXPECT_EQ(read(part), range(4, 6));
}

// ---- receiving

TEST(FlowReceive, IsReadyWhenMatched) {
  const auto source = numbers(4);
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 2);
  const auto received = l.receive();
  EXPECT_FALSE(received.ready());
  (void)l.send(all_of(source));
  EXPECT_TRUE(received.ready());
  EXPECT_EQ(read(received.get()), range(0, 4));
}

struct add_one {
  CW_FN void operator()(const dev::kernel_context&, int* x, std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) ++x[i];
  }
};

TEST(FlowReceive, AStreamWaitsForTheDataAndTheHostDoesNot) {
  const auto source = numbers(4);
  cw::stream work(test_device());
  gate held;
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  (void)l.send(all_of(source), held.close());
  const auto s = l.receive().get();
  s.wait(work);
  cw::launch(work, {}, add_one{}, s.as<int>().data(), s.as<int>().size());
  EXPECT_FALSE(flow::completion(work).ready());
  held.open();
  work.sync();
  EXPECT_EQ(read(s), range(1, 5));
}

TEST(FlowReceive, ABufferThatIsStillUsedIsOverwrittenOnlyAfterItsEvent) {
  const auto source = numbers(8);
  gate held;
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  (void)l.send(all_of(source));
  const auto first = l.receive().get();
  EXPECT_EQ(read(first), range(0, 4));
  l.release(first, held.close());
  const auto next = l.receive();
  ASSERT_TRUE(next.ready()) << "matched: the host waits for nothing";
  EXPECT_FALSE(next.get().arrived().ready()) << "the copy waits";
  held.open();
  EXPECT_EQ(read(next.get()), range(4, 8));
}

TEST(FlowReceive, EachSegmentIsReleasedOnceWhereItCame) {
  const auto source = numbers(8);
  auto ctx = devices(2);
  auto a = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 2);
  auto b = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 2);
  (void)a.send(all_of(source));
  const auto s = a.receive().get();
  expect_error([&] { b.release(s); }, cw::errc::invalid_argument, "another link");
  a.release(s);
  expect_error([&] { a.release(s); }, cw::errc::invalid_argument, "given back before");
  (void)a.send(all_of(source));  // the buffer is in use again, by another segment
  expect_error([&] { a.release(s); }, cw::errc::invalid_argument, "given back before");
  expect_error([&] { a.release({}); }, cw::errc::invalid_argument, "empty");
}

// ---- the end

TEST(FlowShutdown, ReceivesEndWithAnEmptySegmentWhenAllSendersHaveShutDown) {
  const auto source = numbers(4);
  auto ctx = devices(3);
  auto r = ctx.router(2, 1, flow::gather());
  auto a = ctx.link(ctx.devices()[0], r, four, 1);
  auto b = ctx.link(ctx.devices()[1], r, four, 1);
  auto out = ctx.link(r, ctx.devices()[2], four, 1);
  const auto first = out.receive();
  const auto second = out.receive();
  a.shutdown();
  EXPECT_FALSE(first.ready());
  (void)b.send(all_of(source));
  b.shutdown();
  ASSERT_TRUE(first.ready());
  EXPECT_EQ(read(first.get()), range(0, 4));
  EXPECT_EQ(first.get().source(), 1);
  ASSERT_TRUE(second.ready());
  EXPECT_TRUE(second.get().empty());
  EXPECT_TRUE(out.receive().get().empty()) << "and every later one";
}

TEST(FlowShutdown, WhatWasSentBeforeStillArrives) {
  const auto source = numbers(12);
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  (void)l.send(all_of(source));
  l.shutdown();
  EXPECT_EQ(drain(l), range(0, 12));
}

TEST(FlowShutdown, OfAnOutputThatNobodyReachesIsThere) {
  auto ctx = devices(3);
  auto r = ctx.router(3, 3, flow::tree_reduction());
  std::vector<flow::link> out;
  for (const auto d : ctx.devices()) (void)ctx.link(d, r, four, 1);
  for (const auto d : ctx.devices()) out.push_back(ctx.link(r, d, four, 1));
  EXPECT_TRUE(out[1].receive().get().empty()) << "a leaf";
  EXPECT_FALSE(out[0].receive().ready()) << "the root";
}

// ---- nothing hangs

TEST(FlowWaits, EndAtTheDeadline) {
  const auto source = numbers(8);
  gate held;
  auto ctx = devices(2, std::chrono::milliseconds(20));
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  expect_error([&] { (void)l.receive().get(); }, cw::errc::timeout,
               "within 20 ms no segment came out of the link from device0 to device1");
  const auto sent = l.send(all_of(source));
  const std::string bytes = std::to_string(source.size() * sizeof(int));
  expect_error([&] { (void)sent.get(); }, cw::errc::timeout,
               "within 20 ms the " + bytes +
                   " bytes that went into the link from device0 to device1 were not all taken");
  const auto r = ctx.router(2, 1, flow::any_available());
  auto in = ctx.link(flow::host, r, four, 1);
  auto too = ctx.link(flow::host, r, four, 1);
  auto out = ctx.link(r, ctx.devices()[1], four, 1);
  expect_error([&] { (void)out.receive().get(); }, cw::errc::timeout, "out of output 0 of router0");
  (void)in.send({source.data(), four});  // fills the one buffer
  const auto more = too.send({source.data(), four});
  expect_error([&] { (void)more.get(); }, cw::errc::timeout, "into input 1 of router0");
  auto other = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  (void)other.send({source.data(), four}, held.close());
  expect_error([&] { other.receive().get().sync(); }, cw::errc::timeout, "sync");
  held.open();
}

TEST(FlowWaits, EndWhenTheContextIsAborted) {
  const auto source = numbers(4);
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  const auto received = l.receive();
  std::thread other([&] { ctx.abort("the input is broken"); });
  expect_error([&] { (void)received.get(); }, cw::errc::aborted, "the input is broken");
  other.join();
  expect_error([&] { (void)l.send(all_of(source)); }, cw::errc::aborted, "the input is broken");
  expect_error([&] { (void)l.receive(); }, cw::errc::aborted, "the input is broken");
}

/// Who hears of an abort leaves, and takes what it sent along.
TEST(FlowWaits, AfterAnAbortNothingIsReadOfWhatWasSent) {
  std::optional<cw::buffer<int>> source(numbers(8));
  auto ctx = devices(2);
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  (void)l.send(all_of(*source));
  const auto first = l.receive().get();
  EXPECT_EQ(read(first), range(0, 4));
  ctx.abort("enough");
  source.reset();
  l.release(first);  // whoever has not heard of it yet
  EXPECT_EQ(l.bytes_moved(), four);
}

TEST(FlowWaits, ASendThatWasWaitedForInVainIsWithdrawn) {
  std::optional<cw::buffer<int>> source(numbers(8));
  const auto other = numbers(3, 8);
  auto ctx = devices(2, std::chrono::milliseconds(300));
  auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1);
  const auto sent = l.send(all_of(*source));
  const auto next = l.send(all_of(other));
  const auto first = l.receive().get();
  expect_error([&] { (void)sent.get(); }, cw::errc::timeout, "300 ms");
  expect_error([&] { (void)sent.get(); }, cw::errc::timeout, "300 ms");  // and ever after
  source.reset();
  EXPECT_EQ(read(first), range(0, 4));
  l.release(first);
  EXPECT_EQ(take(l), range(8, 11)) << "what waited behind it comes";
  next.get().sync();
  l.shutdown();
  EXPECT_TRUE(l.receive().get().empty());
}

/// Its memory stays until they are done.
TEST(FlowWaits, ALinkMayEndBeforeItsCopies) {
  gate held;
  {
    auto ctx = devices(2);
    auto l =
        ctx.link(ctx.devices()[0], ctx.devices()[1], four, 2, {.how = flow::transport::indirect});
    cw::stream s(test_device());
    const auto first = l.send_buffer(s);
    const auto second = l.send_buffer(s);
    (void)l.send({first.data(), four}, held.close());
    (void)l.send({second.data(), four});
    held.open_later(std::chrono::milliseconds(20));
  }
}

TEST(FlowWaits, OfManyAtOnceAllEnd) {
  const auto source = numbers(400);
  auto ctx = devices(8, std::chrono::seconds(30));
  std::vector<flow::link> ring;
  for (std::size_t i = 0; i < 8; ++i) {
    ring.push_back(ctx.link(ctx.devices()[i], ctx.devices()[(i + 1) % 8], four, 1));
  }
  std::vector<std::thread> all;
  for (std::size_t i = 1; i < 8; ++i) {
    all.emplace_back([&, i] {
      for (;;) {
        const auto got = ring[i - 1].receive().get();
        if (got.empty()) break;
        got.sync();
        ring[i - 1].release(got, ring[i].send({got.data(), got.bytes()}, got.arrived()).get());
      }
      ring[i].shutdown();
    });
  }
  (void)ring[0].send(all_of(source));
  ring[0].shutdown();
  EXPECT_EQ(drain(ring[7]), range(0, 400));
  for (auto& t : all) t.join();
}

// ---- the graph

TEST(FlowGraph, SaysWhatIsWrongWithIt) {
  const auto source = numbers(4);
  const auto bad = cw::errc::invalid_argument;
  expect_error([] { flow::context none({}); }, bad, "at least one device");
  expect_error(
      [] {
        flow::context both({cw::device_ref::cpu(), cw::device_ref::cuda(0)});
      },
      bad, "streams of one kind");
  auto ctx = devices(2);
  const auto a = ctx.devices()[0];
  const auto b = ctx.devices()[1];
  expect_error([&] { (void)ctx.router(0, 1, flow::gather()); }, bad, "at least one input");
  expect_error([&] { (void)ctx.router(1, 1, {}); }, bad, "choose and reachable");
  auto r = ctx.router(1, 2, flow::any_available());
  auto in = ctx.link(a, r, four, 1);
  auto out = ctx.link(r, b, four, 1);
  expect_error([&] { (void)in.send(all_of(source)); }, bad, "1 of 2 outputs");
  expect_error([&] { (void)ctx.link(a, r, four, 1); }, bad, "all 1 inputs");
  (void)ctx.link(r, flow::host, four, 1);
  expect_error([&] { (void)ctx.link(r, b, four, 1); }, bad, "all 2 outputs");
  auto other = ctx.router(1, 1, flow::ring());
  expect_error([&] { (void)ctx.link(r, other, four, 1); }, bad, "put a device between");
  expect_error([&] { (void)ctx.link(a, b, 0, 1); }, bad, "at least 1 buffer");
  expect_error([&] { (void)ctx.link(a, b, four, 0); }, bad, "at least 1 buffer");
  expect_error(
      [&] {
        (void)ctx.link({flow::endpoint::kind::device, 2}, b, four, 1);
      },
      bad, "device2 is none");
  expect_error(
      [&] {
        (void)ctx.link({flow::endpoint::kind::router, 9}, b, four, 1);
      },
      bad, "router9 is none");
  expect_error([&] { (void)ctx.link(a, other, four, 1, {.how = flow::transport::peer}); }, bad,
               "by the link that receives");
  expect_error([&] { (void)ctx.link(a, b, std::size_t{1} << 63U, 2); }, cw::errc::out_of_memory,
               "2 buffers");
  expect_error([&] { (void)in.send({nullptr, 4}); }, bad, "without an address");
  expect_error([&] { (void)in.receive(); }, bad, "leads to a router");
  expect_error([&] { in.release({}); }, bad, "leads to a router");
  expect_error([&] { (void)out.send(all_of(source)); }, bad, "comes from a router");
  expect_error([&] { out.shutdown(); }, bad, "comes from a router");
  expect_error([&] { (void)ctx.device(flow::host); }, bad, "no device");
}

TEST(FlowGraph, IsDrawnWithWhatWentOverEachLink) {
  const auto source = numbers(5);
  auto ctx = devices(2);
  auto r = ctx.router(1, 1, flow::gather());
  auto in = ctx.link(flow::host, r, four, 1, {.name = "in \"<one>\""});
  auto out = ctx.link(r, ctx.devices()[0], four, 1);
  auto back = ctx.link(ctx.devices()[0], flow::host, four, 1);
  auto self = ctx.link(ctx.devices()[1], ctx.devices()[1], four, 1);  // a circle
  (void)in.send(all_of(source));
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string dot = ctx.to_dot();
  EXPECT_TRUE(has(dot, "digraph")) << dot;
  EXPECT_TRUE(has(dot, "n3 [shape=diamond, label=\"gather\"]")) << dot;
  EXPECT_TRUE(has(dot, "n0 -> n3 [label=\"in \\\"<one>\\\"\\n20 bytes\"]")) << dot;
  EXPECT_TRUE(has(dot, "n3 -> n1 [label=\"16 bytes\"]")) << dot;
  const std::string svg = ctx.to_svg();
  EXPECT_TRUE(has(svg, "<svg") && has(svg, "</svg>")) << svg;
  EXPECT_TRUE(has(svg, "&lt;one&gt;") && has(svg, ">16 bytes<")) << svg;
  std::size_t hosts = 0;
  for (std::size_t at = svg.find(">host<"); at != std::string::npos;
       at = svg.find(">host<", at + 1)) {
    ++hosts;
  }
  EXPECT_EQ(hosts, 2U) << "where it begins, and where it ends";
  EXPECT_TRUE(has(devices(1).to_svg(), "</svg>")) << "of a graph without links";
}

TEST(FlowGraph, EveryTransportMovesTheSameBytes) {
  for (const auto how : {flow::transport::automatic, flow::transport::peer, flow::transport::direct,
                         flow::transport::indirect}) {
    auto ctx = devices(2);
    auto l = ctx.link(ctx.devices()[0], ctx.devices()[1], 10 * sizeof(int), 2, {.how = how});
    const auto source = numbers(1003);
    (void)l.send(all_of(source));
    l.shutdown();
    EXPECT_EQ(drain(l), range(0, 1003)) << to_string(how);
    const std::string why = l.explain();
    EXPECT_NE(
        why.find(how == flow::transport::automatic ? "peer transfer: one device" : to_string(how)),
        std::string::npos)
        << why;
  }
  auto ctx = devices(1);
  const auto d = ctx.devices()[0];
  expect_error([&] { (void)ctx.link(flow::host, d, four, 1, {.how = flow::transport::indirect}); },
               cw::errc::invalid_argument, "from device to device");
  expect_error([&] { (void)ctx.link(d, flow::host, four, 1, {.how = flow::transport::direct}); },
               cw::errc::invalid_argument, "ends at a device");
}

TEST(FlowGraph, DevicesThatDoNotReachEachOtherGoThroughTheHost) {
  using crosswarp::flow::impl::choose_way;
  const auto a = cw::device_ref::cuda(0);
  const auto b = cw::device_ref::cuda(1);
  const auto automatic = flow::transport::automatic;
  const auto yes = [] { return true; };
  const auto no = [] { return false; };
  EXPECT_EQ(choose_way(a, b, automatic, yes).how, flow::transport::peer);
  EXPECT_EQ(choose_way(a, b, automatic, no).how, flow::transport::indirect);
  EXPECT_NE(choose_way(a, b, automatic, no).why.find("cuda:0 and cuda:1"), std::string::npos);
  EXPECT_EQ(choose_way(a, a, automatic, no).how, flow::transport::peer) << "one device";
  EXPECT_EQ(choose_way({}, b, automatic, no).how, flow::transport::peer) << "from the host";
}

class FlowIndirect : public testing::TestWithParam<cw::memory_kind> {};

TEST_P(FlowIndirect, WaitsForItsSourceAndItsTarget) {
  const auto source = numbers(8, 0, GetParam());
  gate source_held;
  gate target_held;
  auto ctx = devices(2);
  auto l =
      ctx.link(ctx.devices()[0], ctx.devices()[1], four, 1, {.how = flow::transport::indirect});
  (void)l.send(all_of(source), source_held.close());
  const auto first = l.receive().get();
  EXPECT_FALSE(first.arrived().ready());
  source_held.open();
  EXPECT_EQ(read(first), range(0, 4));
  l.release(first, target_held.close());
  const auto second = l.receive().get();
  EXPECT_FALSE(second.arrived().ready());
  target_held.open();
  EXPECT_EQ(read(second), range(4, 8));
}

INSTANTIATE_TEST_SUITE_P(Sources, FlowIndirect,
                         testing::Values(cw::memory_kind::device, cw::memory_kind::pinned));

}  // namespace
