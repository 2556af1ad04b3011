// The RESP server's engine gives the answers that redis-server gives, byte for byte. Skipped where
// there is no redis-server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <optional>
#include <random>

#include "support/process.hpp"
#include "support/resp_server.hpp"

namespace {

/// redis-server on a socket of its own, without files.
class redis {
 public:
  redis()
      : path_("/tmp/crosswarp-redis." + std::to_string(getpid())),
        server_({"redis-server", "--port", "0", "--unixsocket", path_, "--save", "", "--appendonly",
                 "no", "--daemonize", "no"}) {
    server_.wait_for("eady to accept connections");
  }
  ~redis() { std::filesystem::remove(path_); }
  redis(const redis&) = delete;
  redis& operator=(const redis&) = delete;

  /// The answer up to and with `last`, or to the end of the connection.
  [[nodiscard]] std::string ask(const std::string& in, const std::string& last) const {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      throw std::runtime_error("redis-server cannot be reached: " + server_.report());
    }
    const timeval limit{10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)!send(fd, in.data(), in.size(), MSG_NOSIGNAL);
    std::string out;
    char chunk[65536];
    for (ssize_t n = 0; !out.ends_with(last) && (n = recv(fd, chunk, sizeof(chunk), 0)) > 0;) {
      out.append(chunk, static_cast<std::size_t>(n));
    }
    close(fd);
    return out;
  }

 private:
  std::string path_;
  process server_;
};

bool has_redis() {
  for (const auto& folder : process::split(std::getenv("PATH"), ':')) {
    if (std::filesystem::exists(folder + "/redis-server")) return true;
  }
  return false;
}

/// Words that make sense together, mostly.
class requests {
 public:
  explicit requests(unsigned seed) : random_(seed) {}

  std::vector<std::string> next() {
    static const std::vector<std::vector<std::string>> forms = {
        {"ping"},
        {"PING", "v"},
        {"echo", "v"},
        {"set", "k", "v"},
        {"SET", "k", "i"},
        {"set", "k", "v", "nx"},
        {"set", "k", "v", "XX", "GET"},
        {"set", "k", "v", "KEEPTTL"},
        {"set", "k", "v", "v"},
        {"get", "k"},
        {"del", "k", "k"},
        {"exists", "k", "k", "k"},
        {"incr", "k"},
        {"decr", "k"},
        {"mset", "k", "v", "k", "v", "k", "v"},
        {"mget", "k", "k", "k", "k", "k"},
        {"lpush", "k", "v", "v"},
        {"rpush", "k", "v"},
        {"lpop", "k"},
        {"rpop", "k"},
        {"lpop", "k", "i"},
        {"rpop", "k", "i"},
        {"lrange", "k", "i", "i"},
        {"llen", "k"},
        {"sadd", "k", "one"},
        {"spop", "k"},
        {"spop", "k", "i"},
        {"scard", "k"},
        {"hset", "k", "v", "v", "v", "v"},
        {"hget", "k", "v"},
        {"zadd", "k", "f", "v"},
        {"zadd", "k", "f", "v", "f", "v"},
        {"zadd", "k", "ch", "f", "v"},
        {"zadd", "k", "nx", "f", "v"},
        {"zadd", "k", "xx", "ch", "f", "v"},
        {"zadd", "k", "gt", "ch", "f", "v"},
        {"zadd", "k", "lt", "f", "v"},
        {"zadd", "k", "incr", "f", "v"},
        {"zadd", "k", "xx", "incr", "f", "v"},
        {"zadd", "k", "gt", "lt", "f", "v"},
        {"zadd", "k", "nx", "xx", "f", "v"},
        {"zadd", "k", "xx", "gt", "ch", "f", "v"},
        {"zadd", "k", "gt", "ch", "incr", "f", "v"},
        {"zadd", "k", "ch", "ch", "xx", "lt", "f", "v", "f", "v"},
        {"zadd", "k", "xx", "gt", "ch", "incr", "f", "v", "f", "v"},
        {"zpopmin", "k"},
        {"zpopmin", "k", "i"},
        {"dbsize"},
        {"flushall", "v"},
        {"config", "get", "save"},
        {"config", "get", "appendonly"},
        {"config", "v"},
        {"nonsense", "v", "v"},
        {std::string("\0get", 4), "k"},
        {std::string("get\0", 4), "k"},
        {"command", "v", "v"}};
    std::vector<std::string> words = forms[pick(forms.size())];
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i].size() == 1) words[i] = value(words[i][0]);
    }
    const std::size_t odd = pick(25);  // sometimes a word too many, or too few
    if (odd == 0) words.push_back(value('v'));
    if (odd == 1 && words.size() > 1) words.pop_back();
    // Which of several members comes is not the same everywhere.
    if (words[0] == "sadd") words.resize(std::min<std::size_t>(3, words.size()));
    if (words[0] == "sadd" && words.size() == 3) words[2] = "one";
    return words;
  }

 private:
  std::size_t pick(std::size_t n) { return random_() % n; }
  template <std::size_t N>
  std::string one_of(const char* const (&all)[N]) {
    return all[pick(N)];
  }
  std::string value(char kind) {
    if (kind == 'k') return "key" + std::to_string(pick(8));
    if (kind == 'i') {
      return one_of({"0", "1", "-1", "2", "3", "100", "-100", "9223372036854775807",
                     "-9223372036854775808", "9223372036854775808", "x", "", "1.5", " 1", "01",
                     "5"});
    }
    if (kind == 'f') {
      return one_of({"0",
                     "1",
                     "-1",
                     "2.5",
                     "0.1",
                     "-0.3",
                     "1e3",
                     "1e100",
                     "1.7976931348623157e308",
                     "5e-324",
                     "inf",
                     "-inf",
                     "+inf",
                     "3.",
                     ".5",
                     "1e",
                     "nan",
                     "x",
                     "",
                     " 1",
                     "1 ",
                     "123456789012345678",
                     "0.30000000000000004",
                     "1e-5",
                     "12345.678",
                     "1e400",
                     "1e-400",
                     "-0",
                     "1e17",
                     "123e15",
                     "4.35"});
    }
    switch (pick(8)) {
      case 0:
        return "";
      case 1:
        return std::string(pick(3000), static_cast<char>('a' + pick(26)));
      case 2:
        return std::string("\0\r\n\xff'\"", 6);
      default:
        return one_of({"a", "b", "c", "value", "12", "-7", "nx"});
    }
  }
  std::mt19937 random_;
};

/// The surroundings of the first byte that is not the same; empty when there is none.
std::string difference(const std::string& ours, const std::string& theirs) {
  const auto at = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end()).first;
  if (at == ours.end() && ours.size() == theirs.size()) return "";
  const auto from = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, at - ours.begin() - 60));
  return testing::PrintToString(ours.substr(from, 160)) + "\nand redis\n" +
         testing::PrintToString(theirs.substr(from, 160));
}

class RespAsRedis : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_redis()) GTEST_SKIP() << "no redis-server (scripts/setup)";
    peer_.emplace();
  }
  [[nodiscard]] const redis& peer() const { return *peer_; }

 private:
  std::optional<redis> peer_;
};

TEST_F(RespAsRedis, RandomRequestsGetTheSameAnswers) {
  const server mine;
  requests source(1);
  for (int round = 0; round < 150; ++round) {
    std::vector<std::vector<std::string>> asked;
    std::string in;
    while (asked.size() < 100) {
      asked.push_back(source.next());
      in += array(asked.back());
    }
    asked.push_back({"echo", "that is all"});
    in += array(asked.back());
    const std::string theirs = peer().ask(in, bulk("that is all"));
    ASSERT_EQ(difference(mine.ask(in).text, theirs), "") << "round " << round;
  }
}

TEST_F(RespAsRedis, WhatIsNoRequestGetsTheSameAnswer) {
  const server mine;
  for (const std::string in :
       {"*a\r\n", "*1\r\nPING\r\n", "*1\r\n$a\r\n", "*1\r\n$-1\r\n", "*2\r\n$4\r\nPING\r\n+1\r\n",
        "echo \"a\r\n", "echo 'a'b\r\n", "*99999999999\r\n", "*1\r\n$99999999999\r\n"}) {
    EXPECT_EQ(mine.ask("ping\r\n" + in).text, peer().ask("ping\r\n" + in, "never")) << in;
  }
  for (const std::string in :
       {"ping\r\n", "*0\r\n", "*-5\r\n", "\r\n\r\n  \r\n", "echo \"a \\x41\\n\\t\\b\\a\\z\\\"\"\n",
        "echo 'a\\'b\\x'\r\n", "set k \"\"\r\nget k\r\n", "echo a\"b c\"\r\n",
        "foo \"\\r\\n\" b\r\n", "echo \"\\xzz \\x4\"\r\n", "  echo\tword  \r\n"}) {
    EXPECT_EQ(mine.ask(in + "echo end\r\n").text, peer().ask(in + "echo end\r\n", "end\r\n")) << in;
  }
}

TEST_F(RespAsRedis, NumbersReadAndWrittenAreTheSame) {
  const server mine;
  std::mt19937_64 random(7);
  std::string in;
  for (int i = 0; i < 1500; ++i) {
    // Bits at random; few digits; many digits.
    const std::uint64_t bits = random();
    double d = 0;
    static_assert(sizeof(d) == sizeof(bits));
    std::memcpy(&d, &bits, sizeof(d));
    char text[64];
    std::snprintf(text, sizeof(text),
                  i % 3 == 0   ? "%.17g"
                  : i % 3 == 1 ? "%.25g"
                               : "%.3g",
                  i % 2 == 0 ? d : static_cast<double>(bits % 1'000'000) / 1000);
    in += array({"ZADD", "z", text, "m"}) + array({"ZPOPMIN", "z"});
  }
  in += array({"echo", "end"});
  EXPECT_EQ(difference(mine.ask(in).text, peer().ask(in, bulk("end"))), "");
}

}  // namespace
