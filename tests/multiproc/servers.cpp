// The example servers, kernels on the CPU or on CROSSWARP_TEST_DEVICE, with clients that know
// nothing of them. Each test is skipped where its client is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "support/process.hpp"

namespace {

using testing::HasSubstr;
using testing::Not;

constexpr auto limit = seconds(60);

/// An example and its arguments, where kernels are to run.
std::vector<std::string> example(const std::string& name, const std::vector<std::string>& more) {
  const char* device = std::getenv("CROSSWARP_TEST_DEVICE");
  std::vector<std::string> argv = {CROSSWARP_SERVERS "/" + name, "--device",
                                   device != nullptr ? device : "cpu"};
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

/// A server of examples/servers on a port that is free. Ends it and looks how it ended.
class server {
 public:
  explicit server(const std::string& name, std::vector<std::string> more = {})
      : process_(example(name, with_any_port(std::move(more)))) {
    const std::string words = "listening at 127.0.0.1:";
    EXPECT_TRUE(process_.wait_for("\n")) << process_.report();
    const std::size_t at = process_.out().find(words);
    if (at != std::string::npos) port_ = std::atoi(process_.out().c_str() + at + words.size());
    EXPECT_GT(port_, 0) << process_.report();
  }
  ~server() {
    process_.kill(SIGTERM);
    EXPECT_TRUE(process_.wait(limit)) << "did not end: " << process_.report();
    EXPECT_EQ(process_.code(), 0) << process_.report();
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  [[nodiscard]] int number() const { return port_; }
  /// Descriptors that it has open: one for each connection, and some others.
  [[nodiscard]] std::ptrdiff_t descriptors() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(process_.pid()) +
                                                  "/fd");
    return std::distance(begin(all), end(all));
  }
  [[nodiscard]] std::string port() const { return std::to_string(port_); }
  [[nodiscard]] std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + port() + path;
  }

 private:
  static std::vector<std::string> with_any_port(std::vector<std::string> argv) {
    argv.insert(argv.end(), {"--port", "0"});
    return argv;
  }
  process process_;
  int port_ = 0;
};

sockaddr_in loopback(int port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return where;
}

/// A connection, whose waits end after half a minute.
class client {
 public:
  explicit client(const server& s) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in where = loopback(s.number());
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)), 0)
        << std::strerror(errno);
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~client() { close(fd_); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()))
        << std::strerror(errno);
  }
  /// `n` bytes; fewer where the stream ends before, or is reset.
  [[nodiscard]] std::string receive(std::size_t n) const {
    std::string bytes(n, '\0');
    std::size_t came = 0;
    for (ssize_t got = 1; came < n && got > 0;
         came += got > 0 ? static_cast<std::size_t>(got) : 0) {
      got = recv(fd_, bytes.data() + came, n - came, 0);
    }
    bytes.resize(came);
    return bytes;
  }
  /// Its end is a reset.
  void will_reset() const {
    const linger at_once{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

 private:
  int fd_;
};

bool has(const std::string& program) {
  for (const auto& folder : process::split(std::getenv("PATH"), ':')) {
    if (std::filesystem::exists(std::filesystem::path(folder) / program)) return true;
  }
  return false;
}
std::string lacking(const std::string& program) {
  return "no " + program + " (scripts/setup)";
}

/// What a command says; it has to end well.
std::string output_of(const std::vector<std::string>& argv) {
  process p(argv);
  EXPECT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  return p.out();
}
std::string shell(const std::string& line) {
  return output_of({"sh", "-c", line});
}

TEST(RespServer, RedisCliGetsWhatItPut) {
  if (!has("redis-cli")) GTEST_SKIP() << lacking("redis-cli");
  const server s("resp_server");
  const std::string cli = "redis-cli -p " + s.port() + " ";
  EXPECT_EQ(shell(cli + "set greeting 'good morning'"), "OK\n");
  EXPECT_EQ(shell(cli + "get greeting"), "good morning\n");
  EXPECT_EQ(
      shell("printf 'rpush l 1 2 3\\nlrange l 0 -1\\nincr n\\nzadd z 2 b 1 a\\nzpopmin "
            "z\\nnonsense\\n' | " +
            cli),
      "3\n1\n2\n3\n1\n2\na\n1\nERR unknown command 'nonsense', with args beginning with: \n\n");
  // A value that is longer than what a ring holds at first.
  EXPECT_EQ(shell("head -c 60000 /dev/zero | tr '\\0' x | " + cli + "-x set long"), "OK\n");
  EXPECT_EQ(shell(cli + "get long | head -c 60000 | tr -d x | wc -c"), "0\n");
}

void run_benchmark(const std::vector<std::string>& more) {
  const server s("resp_server");
  std::vector<std::string> argv = {"redis-benchmark", "-p", s.port(), "--csv", "-n", "1500"};
  argv.insert(argv.end(), more.begin(), more.end());
  process p(argv);
  ASSERT_TRUE(p.wait(limit)) << p.report();
  EXPECT_EQ(p.code(), 0) << p.report();
  EXPECT_EQ(p.lines().size(), 21) << p.report();  // a head, and all of the default tests
  EXPECT_THAT(p.out() + p.err(), Not(HasSubstr("rror"))) << p.report();
  EXPECT_THAT(p.out() + p.err(), Not(HasSubstr("WARNING"))) << p.report();
}

TEST(RespServer, PassesTheWholeOfRedisBenchmark) {
  if (!has("redis-benchmark")) GTEST_SKIP() << lacking("redis-benchmark");
  run_benchmark({});
}

TEST(RespServer, PassesTheWholeOfRedisBenchmarkWithPipelines) {
  if (!has("redis-benchmark")) GTEST_SKIP() << lacking("redis-benchmark");
  run_benchmark({"-P", "16", "-r", "1000", "-d", "100"});
}

TEST(RespServer, WhoTypesLinesIsAnswered) {
  if (!has("nc")) GTEST_SKIP() << lacking("nc");
  const server s("resp_server");
  EXPECT_EQ(shell("printf 'PING\\r\\nSET a 1\\nINCR a\\n' | nc -N 127.0.0.1 " + s.port()),
            "+PONG\r\n+OK\r\n:2\r\n");
  EXPECT_EQ(shell("printf '*1\\r\\n$x\\r\\nmore that is not read' | nc -N 127.0.0.1 " + s.port()),
            "-ERR Protocol error: invalid bulk length\r\n");
}

std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
}
std::string all_numbers() {
  std::string numbers;
  for (int i = 0; i < 200'000; ++i) numbers += std::to_string(i) + "\n";
  return numbers;
}

TEST(HttpServer, CurlGetsItsPages) {
  if (!has("curl")) GTEST_SKIP() << lacking("curl");
  const server s("http_server");
  EXPECT_THAT(output_of({"curl", "-sS", s.url("/")}), HasSubstr("sent by a kernel"));
  EXPECT_EQ(output_of({"curl", "-sS", s.url("/compute?n=90")}),
            "fibonacci(90) = 2880067194370816120\n");
  EXPECT_TRUE(output_of({"curl", "-sS", s.url("/numbers")}) == all_numbers());
  // Two requests over one connection, and a status that is no success.
  EXPECT_EQ(output_of({"curl", "-sS", "-o", "/dev/null", "-o", "/dev/null", "-w",
                       "%{http_code} %{num_connects}\n", s.url("/"), s.url("/none")}),
            "200 1\n404 0\n");
  EXPECT_EQ(
      output_of({"curl", "-sS", "-d", "body", "-o", "/dev/null", "-w", "%{http_code}", s.url("/")}),
      "405");
}

TEST(HttpServer, WrkFindsNoErrors) {
  if (!has("wrk")) GTEST_SKIP() << lacking("wrk");
  const server s("http_server");
  const std::string report = output_of({"wrk", "-c", "64", "-t", "2", "-d", "1", s.url("/")});
  EXPECT_THAT(report, HasSubstr("requests in"));
  EXPECT_THAT(report, Not(HasSubstr("Socket errors"))) << report;
  EXPECT_THAT(report, Not(HasSubstr("Non-2xx"))) << report;
}

// Who was told that all is said, or said nothing, kept its place for ever.
TEST(HttpServer, ClientsThatDoNothingLoseTheirPlaces) {
  const server s("http_server", {"--idle", "1"});
  const client busy(s);
  const auto asks_again = [&] {
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 17\r\n\r\nfibonacci(5) = "
        "5\n";
    busy.send(get("/compute?n=5"));
    EXPECT_EQ(busy.receive(answer.size()), answer);
  };
  asks_again();
  const auto before = s.descriptors();
  const client silent(s);
  const client half(s);
  half.send("GET / HTT");
  const client stays(s);
  stays.send("no request\r\n\r\n");
  EXPECT_THAT(stays.receive(100'000), HasSubstr("400 Bad Request"));
  const client reads_nothing(s);
  reads_nothing.send(get("/numbers") + get("/numbers") + get("/numbers") + get("/numbers"));
  EXPECT_GT(s.descriptors(), before);
  EXPECT_TRUE(soon(seconds(30), [&] {
    asks_again();
    return s.descriptors() <= before;
  })) << s.descriptors();
  EXPECT_EQ(silent.receive(1), "");
  asks_again();
}

/// Each byte of `request` is once the last one before a reset; more often than there are places.
void reset_everywhere(const std::string& name, const std::string& request,
                      const std::string& question, const std::string& answer) {
  const server s(name, {"--blocks", "1"});
  const auto is_answered = [&] {
    const client c(s);
    c.send(question);
    EXPECT_EQ(c.receive(answer.size()), answer);
  };
  is_answered();
  const auto before = s.descriptors();
  constexpr int more_than_places = 600;
  for (int resets = 0; resets < more_than_places;) {
    for (std::size_t cut = 0; cut <= request.size(); ++cut, ++resets) {
      const client c(s);
      c.send(std::string_view(request).substr(0, cut));
      // Now and then it is in the middle of an answer.
      if (cut == request.size() || resets % 8 == 0) std::this_thread::sleep_for(milliseconds(2));
      c.will_reset();
    }
  }
  EXPECT_TRUE(soon(seconds(30), [&] { return s.descriptors() <= before; })) << s.descriptors();
  is_answered();
}

TEST(RespServer, ResetsAtAnyPointOfARequestLeaveNothing) {
  reset_everywhere(
      "resp_server",
      "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\nGET k\r\n"
      "*4\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\na\r\n$0\r\n\r\n*2\r\n$3\r\nDEL\r\n$1\r\nl\r\n",
      "PING\r\n", "+PONG\r\n");
}

TEST(HttpServer, ResetsAtAnyPointOfARequestLeaveNothing) {
  reset_everywhere(
      "http_server",
      "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" + get("/numbers"),
      "GET /none HTTP/1.0\r\n\r\n", "HTTP/1.1 404 Not Found\r\n");
}

TEST(HttpServer, AKernelGetsThePagesOfAKernel) {
  const server s("http_server");
  const auto get = [&](const std::string& path) {
    return example("http_client", {"--port", s.port(), "--path", path});
  };
  EXPECT_THAT(output_of(get("/")), HasSubstr("sent by a kernel"));
  EXPECT_THAT(output_of(get("/numbers")), testing::EndsWith("\n199998\n199999\n"));
  process none(get("/none"));
  ASSERT_TRUE(none.wait(limit));
  EXPECT_EQ(none.code(), 1) << none.report();
  EXPECT_EQ(none.out(), "404 Not Found\n");
}

TEST(HttpClient, TellsThatNobodyAnswers) {
  std::string port;
  { port = server("http_server").port(); }
  process p(example("http_client", {"--port", port}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("Connection refused"));
}

TEST(EchoServer, SendsBackWhatNcSends) {
  if (!has("nc")) GTEST_SKIP() << lacking("nc");
  const server s("echo_server");
  EXPECT_EQ(shell("echo hello | nc -N 127.0.0.1 " + s.port()), "hello\n");
  // More than all rings and buffers hold, so that each side has to wait for the other one.
  EXPECT_EQ(shell("head -c 20000000 /dev/zero | nc -N 127.0.0.1 " + s.port() + " | wc -c"),
            "20000000\n");
  EXPECT_EQ(shell("printf '' | nc -N 127.0.0.1 " + s.port()), "") << "an end without a byte";
}

TEST(EchoServer, AnswersTheEchoClientOfGPUnet) {
  const server s("echo_server");
  EXPECT_EQ(output_of(example("echo_client", {"--port", s.port(), "--blocks", "3"})),
            "3 blocks: 100 messages of 4096 bytes each came back as they were\n");
}

/// Answers one request with bytes that are given, and then ends the connection or waits for the
/// client to do so.
class scripted_server {
 public:
  scripted_server(std::string answer, bool closes)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where = loopback(0);
    socklen_t bytes = sizeof(where);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&where), bytes), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&where), &bytes);
    port_ = ntohs(where.sin_port);
    thread_ = std::thread([this, closes, all = std::move(answer)] { serve(all, closes); });
  }
  ~scripted_server() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  scripted_server(const scripted_server&) = delete;
  scripted_server& operator=(const scripted_server&) = delete;
  [[nodiscard]] std::string port() const { return std::to_string(port_); }

 private:
  void serve(const std::string& answer, bool closes) const {
    const int fd = accept(fd_, nullptr, nullptr);
    if (fd < 0) return;
    char request[4096];
    (void)!recv(fd, request, sizeof(request), 0);
    // In pieces: what comes later is appended to what came.
    for (std::size_t at = 0; at < answer.size();) {
      const std::size_t n =
          std::min(answer.size() - at, std::max<std::size_t>(20, answer.size() / 8));
      if (send(fd, answer.data() + at, n, MSG_NOSIGNAL) < 0) break;
      at += n;
      if (answer.size() < 1000) std::this_thread::sleep_for(milliseconds(2));
    }
    if (!closes) (void)!recv(fd, request, sizeof(request), 0);
    close(fd);
  }
  int fd_;
  int port_ = 0;
  std::thread thread_;
};

// Pages that were too long, or cut, were shown as far as they had come, as if they were whole.
TEST(HttpClient, ShowsWholePagesAndTellsOfOthers) {
  struct given {
    const char* what;
    std::string answer;
    bool closes;
    int code;
    std::string out;
    std::string err;
  };
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string large(5U << 20U, 'x');
  const std::vector<given> all = {
      {"length", ok + "Content-Length: 0005\r\n\r\nhello", false, 0, "hello", ""},
      {"chunks", chunked + "5\r\nhello\r\n006;a=\"b\"\r\n world\r\n0\r\nTrailer: x\r\n\r\n", false,
       0, "hello world", ""},
      {"interim", "HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", false, 0,
       "hi", ""},
      {"no content", "HTTP/1.1 204 No Content\r\n\r\n", false, 1, "", ""},
      {"cut", ok + "Content-Length: 10\r\n\r\nhello", true, 2, "",
       "ended after 5 bytes of the page, which has 10"},
      {"chunks cut", chunked + "5\r\nhello\r\n", true, 2, "", "ended after 5 bytes of the page"},
      {"chunks wrong", chunked + "5\r\nhello!\r\n", false, 2, "", "ended after 5 bytes"},
      {"head cut", "HTTP/1.1 200 OK\r\nContent-", true, 2, "", "gave no answer of HTTP/1"},
      {"large", ok + "\r\n" + large, true, 2, "", "has more than 4194304 bytes"}};
  for (const given& g : all) {
    SCOPED_TRACE(g.what);
    const scripted_server s(g.answer, g.closes);
    process p(example("http_client", {"--port", s.port()}));
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), g.code) << p.report();
    EXPECT_EQ(p.out(), g.out);
    EXPECT_THAT(p.err(), HasSubstr(g.err));
  }
}

TEST(MatmulServer, MultipliesWhatASocketSends) {
  const server s("matmul_server");
  const client c(s);
  constexpr std::uint32_t side = 100;
  std::vector<float> a(side * side);
  std::vector<float> b(side * side);
  for (std::uint32_t i = 0; i < side * side; ++i) {
    a[i] = static_cast<float>(i % 7);
    b[i] = static_cast<float>(i % 5);
  }
  const std::uint32_t head[6] = {0x4d4d5743, 1, side, side, side, 77};  // "CWMM", floats
  for (int round = 0; round < 2; ++round) {
    std::string request(reinterpret_cast<const char*>(head), sizeof(head));
    request.append(reinterpret_cast<const char*>(a.data()), a.size() * sizeof(float));
    request.append(reinterpret_cast<const char*>(b.data()), b.size() * sizeof(float));
    c.send(request);
    const std::size_t answer_bytes = sizeof(head) + side * side * sizeof(float);
    const std::string answer = c.receive(answer_bytes);
    ASSERT_EQ(answer.size(), answer_bytes);
    const std::uint32_t expected[6] = {0x4d4d5743, 0, side, side, side, 77};
    EXPECT_EQ(std::memcmp(answer.data(), expected, sizeof(expected)), 0);
    std::vector<float> product(side * side);
    std::memcpy(product.data(), answer.data() + sizeof(head), product.size() * sizeof(float));
    for (std::uint32_t i = 0; i < side * side; i += 37) {
      float sum = 0;
      for (std::uint32_t k = 0; k < side; ++k) {
        sum += a[i / side * side + k] * b[k * side + i % side];
      }
      ASSERT_EQ(product[i], sum) << i;
    }
  }
}

TEST(Servers, RefuseArgumentsThatTheyDoNotKnow) {
  process p(example("resp_server", {"--speed", "high"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2);
  EXPECT_THAT(p.err(), HasSubstr("'--speed' is none of --device, --host, --port"));
}

TEST(Servers, SayHowTheyAreUsed) {
  for (const char* name : {"echo_server", "http_server", "http_client"}) {
    process p(example(name, {"--help"}));
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 0);
    EXPECT_THAT(p.out(), HasSubstr("[--device cpu|cuda]"));
    const bool has_limit = p.out().find("[--idle SECONDS]") != std::string::npos;
    EXPECT_EQ(has_limit, std::string_view(name) == "http_server");
  }
}

TEST(Servers, SayWhatIsWrongWithANumber) {
  for (const char* wrong : {"abc", "", "-1", "65536", "80x", "99999999999"}) {
    process p(example("http_server", {"--port", wrong}));
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 2);
    EXPECT_THAT(p.err(), HasSubstr("--port wants a number from 0 to 65535, not '" +
                                   std::string(wrong) + "'"));
  }
}

}  // namespace
