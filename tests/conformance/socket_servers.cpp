// Connections of the example servers, with an engine that cannot answer at once.
#include <gtest/gtest.h>

#include "examples/servers/conversation.hpp"
#include "support/device.hpp"
#include "support/peer.hpp"

namespace {

namespace cw = crosswarp;
using servers::step_result;
using servers::text;

struct patience {
  int steps;
};
/// Sends back each byte, in the third step that sees it; '.' ends the connection.
struct slow_echo {
  template <class G>
  CW_FN step_result step(const G& g, patience& p, text in, char* out,
                         std::size_t /*room*/) const noexcept {
    step_result r;
    if (in.size == 0) return r;
    if (++p.steps % 3 != 0) {
      r.waits = true;
      return r;
    }
    r.consumed = r.produced = 1;
    r.close = in[0] == '.';
    r.waits = true;
    if (g.rank() == 0) out[0] = in[0];
    g.sync();
    return r;
  }
};

class SocketServer : public testing::Test {
 protected:
  using reception = servers::reception<patience>;
  static constexpr int places = 4;
  static constexpr std::uint64_t span = 256;

  void SetUp() override {
    const auto where = cw::socket::parse_address("127.0.0.1:0");
    const cw::buffer<servers::sock::address> asked(test_device(), std::span(&where, 1));
    const cw::buffer<servers::sock::address> got(test_device(), 1);
    const cw::buffer<servers::sock::handle> listener(test_device(), 1);
    cw::launch(stream_, {}, servers::open_listener{}, net_.device(), asked.data(), listener.data(),
               got.data());
    stream_.sync();
    name_ = got.read()[0];
    cw::launch(stream_, {.threads = 2, .resident = true},
               servers::serve_connections<slow_echo, patience>{}, net_.device(), listener.read()[0],
               slow_echo{},
               reception{items_.data(), talks_.data(), bytes_.data(), places, span, span});
  }
  void TearDown() override {
    net_.stop();
    stream_.sync();
  }
  [[nodiscard]] peer client() const { return peer(name_); }

 private:
  cw::socket::service net_{test_device(), {.threads = socket_threads()}};
  cw::stream stream_{test_device()};
  cw::buffer<servers::sock::poll_item> items_{test_device(), places};
  cw::buffer<servers::conversation<patience>> talks_{test_device(), places};
  cw::buffer<char> bytes_{test_device(), places * 2 * span};
  servers::sock::address name_;
};

TEST_F(SocketServer, AnswersAllThatCameBeforeThePeerEnded) {
  peer p = client();
  p.write("all of it");
  p.end();
  EXPECT_EQ(p.read_to_end(), "all of it");
}

TEST_F(SocketServer, LeavesWhenItWantsTo) {
  peer p = client();
  p.write("enough.and more that nobody reads");
  EXPECT_EQ(p.read_to_end(), "enough.");
  // Others are served meanwhile.
  peer other = client();
  other.write("x");
  EXPECT_EQ(other.read(1), "x");
}

}  // namespace
