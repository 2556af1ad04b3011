// The HTTP server's engine: answers, refusals, requests in pieces and pages in parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../examples/servers/http_site.hpp"
#include "support/serve.hpp"

namespace {

using servers::http_connection;

const std::string large_page = [] {
  std::string s;
  for (int i = 0; i < 3000; ++i) s += std::to_string(i) + "\n";
  return s;
}();

class site {
 public:
  explicit site(const servers::http_options& o = {})
      : pages_(test_device(), {{"/", "text/html", "<p>hello</p>\n"},
                               {"/large", "text/plain", large_page},
                               {"/empty", "text/plain", ""}}),
        engine_(pages_.engine(o)) {}
  serve::answer ask(const std::string& in, const serve::way& w = {}) const {
    return serve::ask<http_connection>(engine_, {in}, w)[0];
  }

 private:
  servers::http_site pages_;
  servers::http engine_;
};

std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: here\r\n" + fields + "\r\n";
}
std::string ok(const std::string& type, const std::string& body, const std::string& more = "") {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + more + "\r\n\r\n" + body;
}
std::string refusal(const std::string& status, bool close, const std::string& more = "") {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(status.size() + 1) +
         more + (close ? "\r\nConnection: close" : "") + "\r\n\r\n" + status + "\n";
}
const std::string home = ok("text/html", "<p>hello</p>\n");

TEST(Http, ServesPagesAndKeepsTheConnection) {
  const site s;
  const auto a = s.ask(get("/") + get("/empty") + get("/?any=thing") + get("/large"));
  EXPECT_EQ(a.text, home + ok("text/plain", "") + home + ok("text/plain", large_page));
  EXPECT_FALSE(a.closed);
}

TEST(Http, AnswersHeadWithoutABody) {
  const site s;
  EXPECT_EQ(s.ask("HEAD /large HTTP/1.1\r\nhost:x\r\n\r\n" + get("/")).text,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " +
                std::to_string(large_page.size()) + "\r\n\r\n" + home);
  EXPECT_THAT(s.ask("HEAD /none HTTP/1.1\r\nhost:x\r\n\r\n").text, testing::EndsWith("\r\n\r\n"));
}

TEST(Http, Computes) {
  const site s;
  EXPECT_EQ(s.ask(get("/compute?n=0")).text, ok("text/plain", "fibonacci(0) = 0\n"));
  EXPECT_EQ(s.ask(get("/compute?n=93")).text,
            ok("text/plain", "fibonacci(93) = 12200160415121876738\n"));
  for (const char* wrong :
       {"", "?", "?n=", "?n=94", "?n=-1", "?n=x", "?n=1&m=2", "?m=1", "?n=01"}) {
    EXPECT_EQ(s.ask(get(std::string("/compute") + wrong)).text, refusal("400 Bad Request", false))
        << wrong;
  }
}

TEST(Http, ClosesWhenAskedTo) {
  const site s;
  const auto close = s.ask(get("/", "Connection: Foo, CLOSE\r\n") + get("/"));
  EXPECT_EQ(close.text, ok("text/html", "<p>hello</p>\n", "\r\nConnection: close"));
  EXPECT_TRUE(close.closed);
  const auto old = s.ask("GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.text, close.text);
  EXPECT_TRUE(old.closed);
  const auto kept = s.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.text, ok("text/html", "<p>hello</p>\n", "\r\nConnection: keep-alive"));
  EXPECT_FALSE(kept.closed);
}

TEST(Http, SkipsBodies) {
  const site s;
  EXPECT_EQ(s.ask(get("/", "Content-Length: 11\r\n") + "GET / HTTP/" + get("/empty")).text,
            home + ok("text/plain", ""));
  EXPECT_EQ(s.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" + get("/")).text,
            refusal("405 Method Not Allowed", false, "\r\nAllow: GET, HEAD") + home);
}

TEST(Http, SkipsBodiesThatComeInChunks) {
  const site s;
  const std::string head = "Transfer-Encoding: Chunked\r\n";
  const std::string pages = home + ok("text/plain", "");
  for (const std::string body :
       {"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n",
        "00a;x=\"y\";z\r\n0\r\n\r\nGET /\r\nF\r\n0123456789abcde\r\n0\r\n\r\n",
        "1 \t;x\r\n0\r\n000\r\nA: b\r\nC: d\r\n\r\n"}) {
    const std::string in = get("/", head) + body + get("/empty");
    EXPECT_EQ(s.ask(in).text, pages) << body;
    EXPECT_EQ(s.ask(in, {.piece = 1}).text, pages) << body;
  }
  for (const std::string wrong :
       {"\r\n", "x\r\n", "-1\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhello!\r\n",
        "5\r\nhello\n0\r\n\r\n", "fffffffffffffffff\r\n", "100001\r\n", "5;\rx\r\n",
        "0\r\nA: b\n\r\n", "5 x\r\n"}) {
    const auto a = s.ask(get("/", head) + wrong + std::string(0x100010, 'a') + get("/"));
    EXPECT_EQ(a.text, home) << wrong;
    EXPECT_TRUE(a.closed) << wrong;
  }
}

TEST(Http, TakesTargetsThatNameTheHost) {
  const site s;
  EXPECT_EQ(s.ask(get("http://here/") + get("HTTPS://here:80/empty?x") + get("http://here")).text,
            home + ok("text/plain", "") + home);
  EXPECT_EQ(s.ask(get("http://here/compute?n=0") + get("http://[::1]:80?n=0")).text,
            ok("text/plain", "fibonacci(0) = 0\n") + home);
}

TEST(Http, LengthsMayBeginWithZeroes) {
  const site s;
  EXPECT_EQ(s.ask(get("/", "Content-Length: 00\r\n") + get("/", "Content-Length: 003\r\n") + "abc" +
                  get("/"))
                .text,
            home + home + home);
}

TEST(Http, ValuesMayHaveBytesBeyondASCII) {
  const site s;
  EXPECT_EQ(s.ask(get("/", "A: \xc3\xa4\tb\r\n")).text, home);
}

TEST(Http, GoesOnAfterWhatItDoesNotFind) {
  const site s;
  EXPECT_EQ(s.ask(get("/none") + get("/")).text, refusal("404 Not Found", false) + home);
  EXPECT_EQ(s.ask("\r\n\n" + get("/")).text, home);
  EXPECT_EQ(s.ask("GET / HTTP/1.1\nHost: x\n\n").text, home);  // line ends of one byte
}

TEST(Http, RefusesAndCloses) {
  const site s;
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"GET /\r\n\r\n", "400 Bad Request"},
      {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"GET / http/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "400 Bad Request"},
      {get("/", "Content-Length: x\r\n"), "400 Bad Request"},
      {get("/", "Content-Length: -1\r\n"), "400 Bad Request"},
      {get("/", "Content-Length: 1\r\nContent-Length: 2\r\n"), "400 Bad Request"},
      {get("/", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "400 Bad Request"},
      {get("/", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), "400 Bad Request"},
      {get("/", "Transfer-Encoding: gzip\r\n"), "400 Bad Request"},
      {get("/", "Transfer-Encoding: \r\n"), "400 Bad Request"},
      {get("/", "Transfer-Encoding: chunked, gzip\r\n"), "400 Bad Request"},
      {get("/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "400 Bad Request"},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400 Bad Request"},
      {get("/", "Transfer-Encoding: gzip, chunked\r\n"), "501 Not Implemented"},
      {get("/", "Content-Length: 1048577\r\n"), "413 Content Too Large"},
      {get("/", "Content-Length: 99999999999999999999999\r\n"), "413 Content Too Large"},
      {get("/", "Content-Length: \r\n"), "400 Bad Request"},
      {get("/", "Content-Length: +1\r\n"), "400 Bad Request"},
      // A byte that some servers take for a line's end, and others do not.
      {get("/", "A: b\rContent-Length: 5\r\n"), "400 Bad Request"},
      {get("/", "A: b\r\r\n"), "400 Bad Request"},
      {get("/", std::string("A: b\0c\r\n", 8)), "400 Bad Request"},
      {get("/", "A: \x7f\r\n"), "400 Bad Request"},
      {"\rGET / HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "400 Bad Request"},
      {get("http:///"), "400 Bad Request"},
      {get("http://u@x/"), "400 Bad Request"},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505 HTTP Version Not Supported"},
      {get("/" + std::string(2100, 'a')), "414 URI Too Long"},
      {"GET /" + std::string(2100, 'a'), "414 URI Too Long"},
      {get("/", "A: " + std::string(8200, 'a') + "\r\n"), "431 Request Header Fields Too Large"},
      {"GET / HTTP/1.1\r\nA: " + std::string(8200, 'a'), "431 Request Header Fields Too Large"}};
  for (const auto& [in, status] : wrong) {
    const auto a = s.ask(get("/") + in + get("/"));
    EXPECT_EQ(a.text, home + refusal(status, true)) << in.substr(0, 80);
    EXPECT_TRUE(a.closed) << in.substr(0, 80);
  }
}

TEST(Http, WhoAsksForLeaveToSendABodyIsAnsweredAndClosed) {
  const site s;
  const auto a = s.ask(get("/", "Expect: 100-continue\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(a.text, ok("text/html", "<p>hello</p>\n", "\r\nConnection: close"));
  EXPECT_TRUE(a.closed);
}

TEST(Http, AnswersTheSameHoweverTheBytesCome) {
  const site s;
  const std::string in = get("/") + get("/large") + get("/none") + "\r\n" +
                         get("/", "Content-Length: 30\r\n") + std::string(30, '\n') +
                         "HEAD / HTTP/1.1\nHost: x\n\n" +
                         get("/compute?n=7", "Connection: close\r\n");
  const std::string whole = s.ask(in).text;
  EXPECT_THAT(whole, testing::EndsWith("fibonacci(7) = 13\n"));
  for (std::size_t piece = 1; piece < 20; ++piece) {
    EXPECT_TRUE(s.ask(in, {.piece = piece}).text == whole) << piece;
  }
  for (std::size_t room = 512; room < 1400; room += 111) {
    EXPECT_TRUE(s.ask(in, {.piece = 50, .room = room}).text == whole) << room;
  }
  for (std::size_t cut = 0; cut < in.size(); cut += 3) {
    const auto a = s.ask(in.substr(0, cut), {.out_bytes = 20000});
    EXPECT_TRUE(a.text == whole.substr(0, a.text.size())) << cut;
  }
}

}  // namespace
