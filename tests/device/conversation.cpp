// Connections and engines: what the blocks of the example servers do between sockets and engines.
#include "../examples/servers/conversation.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/device.hpp"

namespace {

namespace cw = crosswarp;

struct asked {
  int times;
};

/// Answers as many bytes as a span holds with one, but only when it is asked for the second time:
/// as an engine does that waits for a lock.
struct hesitant {
  static constexpr std::uint64_t span = 4096;

  template <class G>
  CW_FN servers::step_result step(const G&, asked& state, servers::text in, char* out,
                                  std::size_t) const {
    servers::step_result r;
    if (in.size < span) return r;
    r.waits = state.times++ % 2 == 0;
    if (r.waits) return r;
    out[0] = '.';
    r.consumed = in.size;
    r.produced = 1;
    return r;
  }
};

/// A kernel that serves with an engine, until this ends.
template <class Engine, class State>
class served {
 public:
  served(const Engine& engine, std::uint64_t in_bytes)
      : net_(test_device()),
        stream_(test_device()),
        items_(test_device(), places),
        talks_(test_device(), places),
        bytes_(test_device(), places * (in_bytes + out_bytes)),
        listener_(test_device(), 1),
        name_(test_device(), 1) {
    const auto where = cw::socket::parse_address("127.0.0.1:0");
    const cw::buffer<servers::sock::address> address(test_device(), std::span(&where, 1));
    cw::launch(stream_, {}, servers::open_listener{}, net_.device(), address.data(),
               listener_.data(), name_.data());
    stream_.sync();
    servers::reception<State> r;
    r.items = items_.data();
    r.talks = talks_.data();
    r.bytes = bytes_.data();
    r.places = places;
    r.in_bytes = in_bytes;
    r.out_bytes = out_bytes;
    cw::launch(stream_, {.resident = true}, servers::serve_connections<Engine, State>{},
               net_.device(), listener_.read()[0], engine, r);
  }
  ~served() {
    net_.stop();
    stream_.sync();
  }
  served(const served&) = delete;
  served& operator=(const served&) = delete;
  [[nodiscard]] std::uint16_t port() const { return name_.read()[0].port; }

 private:
  static constexpr int places = 4;
  static constexpr std::uint64_t out_bytes = 4096;
  cw::socket::service net_;
  cw::stream stream_;
  cw::buffer<servers::sock::poll_item> items_;
  cw::buffer<servers::conversation<State>> talks_;
  cw::buffer<char> bytes_;
  cw::buffer<servers::sock::handle> listener_;
  cw::buffer<servers::sock::address> name_;
};

std::string ask(std::uint16_t port, const std::string& bytes, std::size_t answers) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer(answers, '\0');
  ssize_t n = connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where));
  if (n == 0) n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n > 0) n = recv(fd, answer.data(), answer.size(), MSG_WAITALL);
  close(fd);
  answer.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return answer;
}

// A full span was read into without room, and the 0 that this gives was taken for the end.
TEST(Conversation, AFullSpanIsNotTheEnd) {
  const served<hesitant, asked> s(hesitant{}, hesitant::span);
  EXPECT_EQ(ask(s.port(), std::string(4 * hesitant::span, 'a'), 4), "....");
}

}  // namespace
