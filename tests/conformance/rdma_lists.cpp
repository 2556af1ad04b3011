// Messages that are made of several pieces of memory, and those that go into several.
#include "conformance/rdma_common.hpp"

namespace {

class RdmaLists : public RdmaPairs {
 protected:
  [[nodiscard]] rdma::endpoint_options options(int sge) const {
    rdma::endpoint_options o = RdmaPairs::options(16);
    o.sge = sge;
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(, RdmaLists, testing::Bool(), kind_name);

// ---- from several pieces

using dev::rdma::segment;
using dev::rdma::segment_list;

/// Pieces of a side's memory: where, and how many bytes.
struct pieces {
  using places = std::vector<std::pair<std::uint64_t, std::uint32_t>>;
  pieces(const side& a, const places& of)
      : held(test_device(), std::span<const segment>(segments(a, of))) {}
  static std::vector<segment> segments(const side& a, const places& of) {
    std::vector<segment> all;
    for (const auto& [at, bytes] : of) all.push_back({a.local(at), bytes});
    return all;
  }
  [[nodiscard]] segment_list list() const {
    return {held.data(), static_cast<std::uint32_t>(held.size())};
  }
  cw::buffer<segment> held;
};

template <class By>
struct list_calls {
  CW_FN void operator()(const context& ctx, const view& ep, segment_list from, segment_list to,
                        dev::rdma::remote_memory at, completion* out) const {
    const auto g = By{}(ctx);
    const auto finish = [&](const dev::rdma::posted& p, int i) {
      completion c;
      c.outcome = p.outcome;
      if (c.outcome == status::ok) c.outcome = ep.submit(g, p.end);
      if (c.outcome == status::ok) c = ep.wait(g, p);
      if (g.rank() == 0) out[i] = c;
    };
    finish(ep.post_write(g, from, at), 0);
    finish(ep.post_read(g, to, at), 1);
    finish(ep.post_send(g, from), 2);
    finish(ep.post_write_imm(g, from, at, 7), 3);
  }
};

template <class By>
void check_lists(const rdma::device_context& d, const rdma::endpoint_options& o) {
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(13);
  const auto source = a.memory.read();
  const pieces from(a, {{0, 10}, {100, 1}, {700, 33}, {50, 20}});
  const pieces to(a, {{2000, 1}, {2100, 60}, {2300, 3}});
  std::vector<std::uint8_t> message;
  for (const auto& [at, bytes] : {std::pair{0, 10}, {100, 1}, {700, 33}, {50, 20}}) {
    message.insert(message.end(), source.begin() + at, source.begin() + at + bytes);
  }
  post_recv<By>(b, 1000, 100, 2);
  cw::buffer<completion> out(test_device(), 4);
  start<By>(list_calls<By>{}, a.ep.device(), from.list(), to.list(), b.remote(300), out.data());
  for (const completion& c : out.read()) EXPECT_EQ(c.outcome, status::ok) << to_string(c.why);
  const auto in = received<By>(b, 2);
  EXPECT_EQ(in[0].bytes, message.size());
  EXPECT_EQ(in[1].bytes, message.size());
  EXPECT_EQ(in[1].imm, 7U);
  const auto got = b.memory.read();
  EXPECT_TRUE(std::equal(message.begin(), message.end(), got.begin() + 300)) << "written";
  EXPECT_TRUE(std::equal(message.begin(), message.end(), got.begin() + 1000)) << "sent";
  EXPECT_EQ(got[300 + message.size()], 0);
  const auto back = a.memory.read();
  EXPECT_EQ(back[2000], message[0]);
  EXPECT_TRUE(std::equal(back.begin() + 2100, back.begin() + 2160, message.begin() + 1));
  EXPECT_TRUE(std::equal(back.begin() + 2300, back.begin() + 2303, message.begin() + 61));
  EXPECT_EQ(back[2303], source[2303]) << "beyond its end";
}

TEST_P(RdmaLists, MessagesOfSeveralPieces) {
  const auto o = options(4);
  check_lists<by_thread>(open(), o);
  check_lists<by_warp>(open(), o);
  check_lists<by_block>(open(), o);
  check_lists<by_sole>(open(), o);
}

TEST_P(RdmaLists, AsManyPiecesAsAreAskedForAndNoMore) {
  const auto d = open();
  const auto o = options(16);
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(17);
  const auto source = a.memory.read();
  // In reverse, each of another length; entries of several blocks go round the queue's end.
  pieces::places all;
  for (std::uint32_t i = 0; i < 17; ++i) all.emplace_back(100 * (16 - i), i + 1);
  const pieces list(a, all);
  request r = {.op = operation::write, .remote = b.remote()};
  for (std::uint32_t count = 1; count <= 16; ++count) {
    r.list = {list.held.data(), count};
    ASSERT_EQ(perform_one(a, r).outcome, status::ok) << count;
    const auto got = b.memory.read();
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(at),
                             got.begin() + static_cast<std::ptrdiff_t>(at + all[i].second),
                             source.begin() + static_cast<std::ptrdiff_t>(all[i].first)))
          << i << " of " << count;
      at += all[i].second;
    }
    EXPECT_EQ(got[at], 0);
  }
  r.list.count = 17;
  EXPECT_EQ(perform_one(a, r).outcome, status::invalid) << "more than sge";
  r.list.count = 2;
  r.inline_data = a.memory.data();
  EXPECT_EQ(perform_one(a, r).outcome, status::invalid) << "inline data has no pieces";
  r = {.op = operation::fetch_add, .list = {list.held.data(), 1}, .remote = b.remote()};
  EXPECT_EQ(perform_one(a, r).outcome, status::invalid) << "an atomic has one word";
  const pieces with_empty(a, {{0, 8}, {16, 0}});
  r = {.op = operation::write, .list = with_empty.list(), .remote = b.remote()};
  EXPECT_EQ(perform_one(a, r).outcome, status::invalid) << "adapters take 0 for 2 GiB";
  EXPECT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok) << "nothing of it was posted";
}

/// Receives whose one piece is that long, of its own queue and of a shared one.
struct post_long {
  CW_FN void operator()(const context& ctx, const view& ep,
                        const dev::rdma::shared_receive_queue& shared, dev::rdma::local_memory to,
                        std::uint32_t bytes, status* out) const {
    out[0] = ep.post_recv(ctx.thread(), to, bytes).outcome;
    out[1] = shared.post_recv(ctx.thread(), to, bytes).outcome;
  }
};

// They succeeded, and wrote nothing, or the entry's own bytes.
TEST_P(RdmaLists, FromTwoGibibytesOnNothingIsPosted) {
  const auto d = open();
  const auto o = options(2);
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  const auto shared = d.make_shared_receive_queue({.depth = 4});
  for (const std::uint32_t bytes : {0x80000000U, 0x80000008U, 0xffffffffU}) {
    EXPECT_EQ(perform_one(a, write_of(a, b, bytes)).outcome, status::invalid) << bytes;
    const pieces list(a, {{0, 8}, {8, bytes}});
    const request r = {.op = operation::write, .list = list.list(), .remote = b.remote()};
    EXPECT_EQ(perform_one(a, r).outcome, status::invalid) << bytes;
    cw::buffer<status> out(test_device(), 2);
    start<by_thread>(post_long{}, a.ep.device(), shared.device(), a.local(), bytes, out.data());
    EXPECT_EQ(out.read(), std::vector<status>(2, status::invalid)) << bytes;
  }
  EXPECT_EQ(b.memory.read(), std::vector<std::uint8_t>(4096));
  EXPECT_EQ(perform_one(a, write_of(a, b, 8)).outcome, status::ok) << "the endpoint is well";
}

TEST_P(RdmaLists, APieceThatIsNotRegisteredFailsTheEntry) {
  const auto d = open();
  const auto o = options(3);
  side a(d, o);
  side b(far_of(d), o);
  connect(a, b);
  a.fill(3);
  const pieces list(a, {{0, 8}, {4090, 7}, {16, 8}});  // the second one byte too far
  const request r = {.op = operation::write, .list = list.list(), .remote = b.remote()};
  EXPECT_EQ(perform_one(a, r).outcome, status::invalid);
  EXPECT_EQ(a.ep.state(), rdma::endpoint_state::failed);
  EXPECT_EQ(b.memory.read(), std::vector<std::uint8_t>(4096)) << "nothing was written";
}

// ---- into several pieces

/// Posts one receive, for an endpoint or for those that share the queue.
template <class By>
struct post_list {
  template <class Queue>
  CW_FN void operator()(const context& ctx, const Queue& to, segment_list list, status* out) const {
    const auto g = By{}(ctx);
    const auto p = to.post_recv(g, list);
    const status s = p.outcome == status::ok ? tell(g, to) : p.outcome;
    if (g.rank() == 0) *out = s;
  }
  template <class G>
  CW_FN static status tell(const G& g, const view& ep) {
    return ep.update_recv_dbr_record(g);
  }
  template <class G>
  CW_FN static status tell(const G& g, const dev::rdma::shared_receive_queue& q) {
    return q.update_dbr_record(g);
  }
};
template <class By = by_thread, class Queue>
status post_to(const Queue& q, const segment_list& list) {
  cw::buffer<status> out(test_device(), 1);
  start<By>(post_list<By>{}, q, list, out.data());
  return out.read()[0];
}

/// What `message` makes of `before` when it comes into those pieces.
std::vector<std::uint8_t> scattered(std::vector<std::uint8_t> before, const pieces::places& to,
                                    std::span<const std::uint8_t> message) {
  for (const auto& [at, bytes] : to) {
    const std::size_t n = std::min<std::size_t>(bytes, message.size());
    std::copy_n(message.begin(), n, before.begin() + static_cast<std::ptrdiff_t>(at));
    message = message.subspan(n);
  }
  return before;
}

template <class By>
void check_scatter(const rdma::device_context& d, const rdma::endpoint_options& o) {
  SCOPED_TRACE(threads_of<By>());
  constexpr std::size_t large = 1U
                                << 18U;  // messages of several requests, where a wire has a limit
  side a(d, o, rdma::access::all, large);
  side b(far_of(d), o, rdma::access::all, large);
  connect(a, b);
  a.fill(23);
  const auto sent = a.memory.read();
  const pieces::places none;
  const std::vector<std::pair<pieces::places, std::uint32_t>> all = {
      {{{900, 10}, {100, 1}, {500, 30}, {50, 20}}, 61},  // as many as there is room for, filled
      {{{900, 10}, {100, 1}, {500, 30}, {50, 20}}, 25},  // ends in the third
      {{{40, 8}, {0, 8}}, 8},                            // ends with the first
      {{{7, 3}, {1, 2}, {20, 5}}, 10},
      {{{200'000, 60'000}, {3, 1}, {10'000, 70'000}}, 130'001},
      {none, 0},
  };
  for (const auto& [to, bytes] : all) {
    const pieces list(b, to);
    const auto before = b.memory.read();
    ASSERT_EQ(post_to<By>(b.ep.device(), list.list()), status::ok);
    ASSERT_EQ(
        perform_one<By>(a, {.op = operation::send, .bytes = bytes, .local = a.local()}).outcome,
        status::ok);
    const completion in = received<By>(b, 1)[0];
    EXPECT_EQ(in.outcome, status::ok) << to_string(in.why);
    EXPECT_EQ(in.bytes, bytes);
    EXPECT_EQ(b.memory.read(), scattered(before, to, std::span(sent).first(bytes))) << bytes;
  }
}

TEST_P(RdmaLists, AMessageFillsPieceAfterPiece) {
  check_scatter<by_thread>(open(), options(4));
  check_scatter<by_warp>(open(), options(4));
  check_scatter<by_block>(open(), options(4));
}

TEST_P(RdmaLists, AMessageThatIsLongerThanAllPiecesFails) {
  const auto d = open();
  side a(d, options(4));
  side b(far_of(d), options(4));
  connect(a, b);
  a.fill(1);
  const pieces list(b, {{0, 8}, {16, 8}});
  ASSERT_EQ(post_to(b.ep.device(), list.list()), status::ok);
  const completion out = perform_one(a, {.op = operation::send, .bytes = 17, .local = a.local()});
  EXPECT_EQ(out.outcome, status::invalid);
  const completion in = received(b, 1, soon())[0];
  EXPECT_EQ(in.outcome, status::invalid);
  if (over_soft()) {  // others have other words for it
    EXPECT_EQ(out.why, syndrome::remote_invalid_request);
    EXPECT_EQ(in.why, syndrome::local_length);
  }
}

TEST_P(RdmaLists, ReceivesOfMorePiecesThanWereAskedForAreRefused) {
  const auto d = open();
  side a(d, options(3));
  side b(far_of(d), options(3));
  connect(a, b);
  const pieces list(b, {{0, 8}, {16, 8}, {32, 8}, {48, 8}});
  EXPECT_EQ(post_to(b.ep.device(), list.list()), status::invalid) << "there would be room for it";
  const pieces with_empty(b, {{0, 8}, {16, 0}});
  EXPECT_EQ(post_to(b.ep.device(), with_empty.list()), status::invalid) << "0 would be 2 GiB";
  ASSERT_EQ(post_to(b.ep.device(), {list.held.data(), 3}), status::ok);
  EXPECT_EQ(perform_one(a, {.op = operation::send, .bytes = 24, .local = a.local()}).outcome,
            status::ok);
  EXPECT_EQ(received(b, 1)[0].index, 0U) << "nothing of them was posted";
}

TEST_P(RdmaLists, APieceThatIsNotRegisteredFailsTheReceive) {
  const auto d = open();
  side a(d, options(2));
  side b(far_of(d), options(2));
  connect(a, b);
  a.fill(2);
  const pieces list(b, {{4088, 8}, {4090, 7}});  // the second one byte too far
  ASSERT_EQ(post_to(b.ep.device(), list.list()), status::ok);
  ASSERT_EQ(post_to(b.ep.device(), list.list()), status::ok);
  EXPECT_EQ(perform_one(a, {.op = operation::send, .bytes = 8, .local = a.local()}).outcome,
            status::ok)
      << "it is not needed";
  const completion out = perform_one(a, {.op = operation::send, .bytes = 15, .local = a.local()});
  EXPECT_EQ(out.outcome, status::invalid);
  if (over_soft()) {
    EXPECT_EQ(out.why, syndrome::remote_operation);
  }
  const auto in = received(b, 2, soon());
  EXPECT_EQ(in[0].outcome, status::ok);
  EXPECT_EQ(in[1].outcome, status::invalid);
  if (over_soft()) {
    EXPECT_EQ(in[1].why, syndrome::local_protection);
  }
}

TEST_P(RdmaLists, FromAQueueThatIsShared) {
  const auto d = open();
  for (const int sge : {2, 3, 16}) {
    SCOPED_TRACE(sge);
    const auto queue = far_of(d).make_shared_receive_queue({.depth = 4, .sge = sge});
    auto with = options(1);
    with.receives = &queue;
    side a(d, options(1));
    side b(far_of(d), with);
    connect(a, b);
    a.fill(sge);
    const auto sent = a.memory.read();
    // Each of another length; the last is one too many.
    pieces::places all;
    for (int i = 0; i <= sge; ++i) {
      all.emplace_back(100 * (sge - i), static_cast<std::uint32_t>(i + 1));
    }
    const pieces list(b, all);
    std::uint32_t bytes = 0;
    for (int i = 0; i < sge; ++i) bytes += static_cast<std::uint32_t>(i + 1);
    // Longer than the ring, and now and then a short message, or a short list.
    for (std::uint32_t i = 0; i < 9; ++i) {
      const auto before = b.memory.read();
      const bool brief = i % 3 == 1;
      const segment_list to = {list.held.data(), brief ? 1U : static_cast<std::uint32_t>(sge)};
      const std::uint32_t message = brief ? 1 : bytes - i % 2;
      ASSERT_EQ(post_to(queue.device(), to), status::ok);
      ASSERT_EQ(
          perform_one(a, {.op = operation::send, .bytes = message, .local = a.local(i)}).outcome,
          status::ok);
      const completion in = received(b, 1)[0];
      EXPECT_EQ(in.index, i);
      EXPECT_EQ(in.bytes, message);
      EXPECT_EQ(b.memory.read(), scattered(before, all, std::span(sent).subspan(i, message)));
    }
    EXPECT_EQ(post_to(queue.device(), list.list()), status::invalid) << "more than sge";
    ASSERT_EQ(post_to(queue.device(), {list.held.data(), static_cast<std::uint32_t>(sge)}),
              status::ok);
    EXPECT_EQ(
        perform_one(a, {.op = operation::send, .bytes = bytes + 1, .local = a.local()}).outcome,
        status::invalid)
        << "longer than all pieces";
    EXPECT_EQ(received(b, 1, soon())[0].outcome, status::invalid);
  }
}

}  // namespace
