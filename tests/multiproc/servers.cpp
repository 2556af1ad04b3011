// The example servers, kernels on the CPU or on CROSSWARP_TEST_DEVICE, with clients that know
// nothing of them. Each test is skipped where its client is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

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
  explicit server(const std::string& name) : process_(example(name, {"--port", "0"})) {
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
  [[nodiscard]] std::string port() const { return std::to_string(port_); }
  [[nodiscard]] std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + port() + path;
  }

 private:
  process process_;
  int port_ = 0;
};

bool has(const std::string& program) {
  for (const auto& folder : process::split(std::getenv("PATH"), ':')) {
    if (std::filesystem::exists(folder + "/" + program)) return true;
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

TEST(HttpServer, CurlGetsItsPages) {
  if (!has("curl")) GTEST_SKIP() << lacking("curl");
  const server s("http_server");
  EXPECT_THAT(output_of({"curl", "-sS", s.url("/")}), HasSubstr("sent by a kernel"));
  EXPECT_EQ(output_of({"curl", "-sS", s.url("/compute?n=90")}),
            "fibonacci(90) = 2880067194370816120\n");
  std::string numbers;
  for (int i = 0; i < 200'000; ++i) numbers += std::to_string(i) + "\n";
  EXPECT_TRUE(output_of({"curl", "-sS", s.url("/numbers")}) == numbers);
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

TEST(MatmulServer, MultipliesWhatASocketSends) {
  const server s("matmul_server");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(s.number()));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  const timeval patience{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
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
    ASSERT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::vector<char> answer(sizeof(head) + side * side * sizeof(float));
    ASSERT_EQ(recv(fd, answer.data(), answer.size(), MSG_WAITALL),
              static_cast<ssize_t>(answer.size()));
    const std::uint32_t expected[6] = {0x4d4d5743, 0, side, side, side, 77};
    EXPECT_EQ(std::memcmp(answer.data(), expected, sizeof(expected)), 0);
    std::vector<float> c(side * side);
    std::memcpy(c.data(), answer.data() + sizeof(head), c.size() * sizeof(float));
    for (std::uint32_t i = 0; i < side * side; i += 37) {
      float sum = 0;
      for (std::uint32_t k = 0; k < side; ++k) {
        sum += a[i / side * side + k] * b[k * side + i % side];
      }
      ASSERT_EQ(c[i], sum) << i;
    }
  }
  close(fd);
}

TEST(Servers, RefuseArgumentsThatTheyDoNotKnow) {
  process p(example("resp_server", {"--speed", "high"}));
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2);
  EXPECT_THAT(p.err(), HasSubstr("'--speed' is none of --device, --host, --port"));
}

}  // namespace
