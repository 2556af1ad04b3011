// crosswarp doctor: what it finds on this machine, and on this machine made worse.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "jobs.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto limit = seconds(30);

struct examination {
  int code = -1;
  json findings;
  std::string report;

  [[nodiscard]] json of(const std::string& area) const {
    for (const json& f : findings) {
      if (f["area"] == area) return f;
    }
    ADD_FAILURE() << "nothing about " << area << ": " << report;
    return {{"area", area}, {"severity", ""}, {"seen", ""}, {"remedy", ""}};
  }
};

examination finish(process& p) {
  examination e;
  EXPECT_TRUE(p.wait(limit)) << p.report();
  e.code = p.code();
  e.report = p.report();
  e.findings = json::parse(p.out(), nullptr, false);
  EXPECT_TRUE(e.findings.is_array()) << e.report;
  if (!e.findings.is_array()) e.findings = json::array();
  return e;
}

/// `before`: words of a shell's script that changes what the command sees.
examination examine(const environment& extra = {}, const std::string& before = "",
                    const std::string& options = "") {
  process p({"sh", "-c", before + " '" + CROSSWARP_COMMAND + "' doctor --json " + options}, extra);
  return finish(p);
}

// ---- as it is

TEST(Doctor, SaysWhatEachFindingMeans) {
  const examination e = examine();
  EXPECT_GE(e.findings.size(), 15U);
  bool problems = false;
  for (const json& f : e.findings) {
    EXPECT_THAT(f["severity"].get<std::string>(), AnyOf("ok", "hint", "problem", "skipped"));
    EXPECT_NE(f["area"], "");
    EXPECT_NE(f["seen"], "") << f;
    const bool bad = f["severity"] == "hint" || f["severity"] == "problem";
    EXPECT_EQ(bad, f["remedy"] != "") << f;
    EXPECT_THAT(f["remedy"].get<std::string>(), Not(HasSubstr("\n")));
    problems = problems || f["severity"] == "problem";
  }
  EXPECT_EQ(e.code, problems ? 1 : 0) << e.report;
}

TEST(Doctor, TextHasTheSameInAlignedLines) {
  const examination e = examine();
  process p({CROSSWARP_COMMAND, "doctor"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), e.code) << p.report();
  EXPECT_EQ(p.err(), "");
  std::size_t column = std::string::npos;
  for (const json& f : e.findings) {
    const std::string area = f["area"];
    const std::string line = f["severity"].get<std::string>();
    const auto lines = p.lines();
    const auto it = std::find_if(lines.begin(), lines.end(), [&](const std::string& l) {
      return l.starts_with(line) && l.substr(9).starts_with(area + "  ");
    });
    ASSERT_NE(it, lines.end()) << area << "\n" << p.report();
    const std::size_t text = it->find_first_not_of(' ', 9 + area.size());
    if (column == std::string::npos) column = text;
    EXPECT_EQ(text, column) << *it;
  }
}

TEST(Doctor, MisuseIsToldInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--reach", "nonsense"}, "HOST:PORT"},
      {{"--reach", "here:"}, "HOST:PORT"},
      {{"--reach", "here:70000"}, "HOST:PORT"},
      {{"--listen", "70000"}, "70000"},
      {{"--listen", "x"}, "'x' is not a port"},
      {{"--ranks", "5000"}, "4096"},
      {{"--timeout", "0", "--listen", "0"}, "0"},
      {{"--listen", "0", "--reach", "a:1"}, "excludes"},
      {{"--loud"}, "--loud"}};
  for (const auto& [words, says] : cases) {
    std::vector<std::string> argv = {CROSSWARP_COMMAND, "doctor"};
    argv.insert(argv.end(), words.begin(), words.end());
    process p(argv);
    ASSERT_TRUE(p.wait(limit));
    EXPECT_EQ(p.code(), 2) << p.report();
    EXPECT_EQ(p.out(), "");
    EXPECT_THAT(p.error_lines(), ElementsAre(AllOf(StartsWith("crosswarp: "), HasSubstr(says))));
  }
}

// ---- limits

TEST(DoctorLimits, TooFewFilesForSixtyFourRanks) {
  const examination few = examine({}, "ulimit -n 100; exec");
  EXPECT_EQ(few.code, 1) << few.report;
  EXPECT_EQ(few.of("open files")["severity"], "problem");
  EXPECT_THAT(few.of("open files")["seen"].get<std::string>(), HasSubstr("64 ranks"));
  // Fewer ranks need fewer, and the launcher agrees.
  EXPECT_EQ(examine({}, "ulimit -n 100; exec", "--ranks 16").of("open files")["severity"], "hint");
  std::string script = "ulimit -n 100; exec";
  for (const std::string& word : job_command(16, {"work"})) script += " '" + word + "'";
  process p({"sh", "-c", script});
  ASSERT_TRUE(p.wait(seconds(60)));
  EXPECT_EQ(p.code(), 0) << p.report();
}

TEST(DoctorLimits, LittleLockedMemory) {
  // Root is not bound by the limit, unless it gives that right away.
  const std::string drop =
      geteuid() == 0 ? "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock" : "";
  if (!drop.empty()) {
    process p({"sh", "-c", drop + " true"});
    ASSERT_TRUE(p.wait(limit));
    if (p.code() != 0) GTEST_SKIP() << "rights cannot be given away here: " << p.err();
  }
  const json f = examine({}, "ulimit -l 64; exec " + drop).of("locked memory");
  EXPECT_THAT(f["severity"].get<std::string>(), AnyOf("hint", "problem"));
  EXPECT_THAT(f["seen"].get<std::string>(), HasSubstr("64 KiB"));
}

TEST(DoctorLimits, MoreRanksThanCores) {
  const json f = examine({}, "exec", "--ranks 4000").of("cores");
  EXPECT_EQ(f["severity"], "hint");
}

TEST(DoctorLimits, FewerCoresByAffinity) {
  process probe({"taskset", "-c", "0", "true"});
  ASSERT_TRUE(probe.wait(limit));
  if (probe.code() != 0) GTEST_SKIP() << "no taskset, or no core 0";
  const json f = examine({}, "exec taskset -c 0", "--ranks 2").of("cores");
  EXPECT_EQ(f["severity"], "hint") << f;
}

// ---- engines

/// A folder with a file that says it is an engine.
class fake_engine {
 public:
  explicit fake_engine(const std::string& contents) {
    std::string name = (fs::temp_directory_path() / "doctor-test-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::ofstream(folder_ / "crosswarp_ucx.so", std::ios::binary) << contents;
  }
  ~fake_engine() { fs::remove_all(folder_); }
  fake_engine(const fake_engine&) = delete;
  fake_engine& operator=(const fake_engine&) = delete;
  [[nodiscard]] std::string folder() const { return folder_; }

 private:
  fs::path folder_;
};

/// Bytes of some shared library.
std::string library_bytes() {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(std::lgamma)), &where) == 0) {
    return "";
  }
  std::ifstream in(where.dli_fname, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(DoctorEngines, BrokenModuleIsAProblem) {
  const std::string library = library_bytes();
  ASSERT_GT(library.size(), 10'000U);
  // Of the last one the loader maps pages that the file does not have: to touch them is fatal.
  for (const std::string& contents :
       {std::string(), std::string("this is no module"), library,
        library.substr(0, library.size() / 2), library.substr(0, 9000)}) {
    const fake_engine fake(contents);
    const examination e = examine({{"CROSSWARP_ENGINE_PATH", fake.folder()}});
    EXPECT_EQ(e.code, 1) << contents.size() << " bytes: " << e.report;
    EXPECT_EQ(e.of("engine ucx")["severity"], "problem") << e.report;
  }
}

TEST(DoctorEngines, AbsentEngineThatIsAskedForIsAProblem) {
  const examination e = examine({{"CROSSWARP_ENGINE", "mpi"}});
  const json f = e.of("engine mpi");
  EXPECT_THAT(f["severity"].get<std::string>(), AnyOf("ok", "problem")) << f;
  EXPECT_EQ(e.code == 1, f["severity"] == "problem") << e.report;
}

// ---- the environment

TEST(DoctorEnvironment, UnknownVariableIsNamedAndGuessed) {
  const json f = examine({{"CROSSWARP_HAEP", "1G"}}).of("variables");
  EXPECT_EQ(f["severity"], "hint");
  EXPECT_THAT(f["seen"].get<std::string>(), HasSubstr("CROSSWARP_HAEP"));
  EXPECT_EQ(f["remedy"], "did you mean CROSSWARP_HEAP?");
  process odd({CROSSWARP_COMMAND, "doctor", "--json"}, {{"CROSSWARP_\xff", "1"}});
  EXPECT_EQ(finish(odd).of("variables")["severity"], "hint") << "a name may be any bytes";
  EXPECT_EQ(examine({{"CROSSWARP_HEAP", "1G"}}).of("variables")["severity"], "ok");
  EXPECT_EQ(examine({{"CROSSWARP_UCX_TLS", "tcp"}}).of("variables")["severity"], "ok")
      << "UCX reads it";
}

TEST(DoctorEnvironment, ContradictionsAreProblems) {
  const std::vector<std::pair<environment, const char*>> cases = {
      {{{"CROSSWARP_PATH", "mapped"}, {"CROSSWARP_NODES", "2"}}, "CROSSWARP_PATH"},
      {{{"CROSSWARP_ENGINE", "local"}, {"CROSSWARP_NODES", "2"}}, "CROSSWARP_ENGINE"},
      {{{"CROSSWARP_QUEUE_DEPTH", "48"}}, "power of two"},
      {{{"CROSSWARP_ENGINE", "abacus"}}, "abacus"},
      {{{"CROSSWARP_DEVICE", "abacus"}}, "abacus"},
      {{{"CROSSWARP_HEAP", "much"}}, "much"},
      {{{"CROSSWARP_LOG", "loud"}}, "loud"},
      {{{"CROSSWARP_SIZE", "3"}}, "CROSSWARP_SIZE"},
      {{{"CROSSWARP_TUNING", "/proc/version"}}, "run crosswarp tune"},
      {{{"CROSSWARP_TUNING", "/no/such/table"}}, "/no/such/table"},
  };
  for (const auto& [extra, says] : cases) {
    const examination e = examine(extra);
    EXPECT_EQ(e.code, 1) << says << ": " << e.report;
    EXPECT_EQ(e.of("settings")["severity"], "problem") << says;
    EXPECT_THAT(e.of("settings")["seen"].get<std::string>(), HasSubstr(says));
  }
  EXPECT_EQ(examine({{"CROSSWARP_QUEUE_DEPTH", "64"}}).of("settings")["severity"], "ok");
}

TEST(DoctorEnvironment, SecretIsNotShown) {
  const std::string secret(32, 'a');
  EXPECT_THAT(examine({{"CROSSWARP_SECRET", secret}}).report, Not(HasSubstr(secret)));
}

// ---- between machines

/// A socket at a port of its own on the loopback.
class door {
 public:
  door() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.1", &address_.sin_addr);
    socklen_t length = sizeof(address_);
    bind(socket_, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length);
  }
  ~door() {
    for (const int fd : guests_) close(fd);
    close(socket_);
  }
  door(const door&) = delete;
  door& operator=(const door&) = delete;

  void open(int backlog) const { listen(socket_, backlog); }
  /// Until nobody more gets in.
  void crowd() {
    for (int i = 0; i < 8; ++i) {
      guests_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      connect(guests_.back(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    }
    usleep(100'000);
  }
  [[nodiscard]] int fd() const { return socket_; }
  [[nodiscard]] std::string address() const {
    return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
  }

 private:
  int socket_;
  sockaddr_in address_{};
  std::vector<int> guests_;
};

examination reach(const std::string& where, const std::string& options = "") {
  return examine({}, "exec", "--reach " + where + " " + options);
}

TEST(DoctorReach, ClosedPortIsRefused) {
  const door closed;
  const examination e = reach(closed.address());
  EXPECT_EQ(e.code, 1) << e.report;
  EXPECT_THAT(e.of("there")["seen"].get<std::string>(), HasSubstr("refused"));
}

TEST(DoctorReach, SilenceIsTakenForAFirewall) {
  door full;
  full.open(0);
  full.crowd();
  const examination e = reach(full.address(), "--timeout 1");
  EXPECT_EQ(e.code, 1) << e.report;
  EXPECT_THAT(e.of("there")["remedy"].get<std::string>(), HasSubstr("firewall"));
}

TEST(DoctorReach, UnknownHostIsNamed) {
  const examination e = reach("no-such-host.invalid:80");
  EXPECT_EQ(e.code, 1) << e.report;
  EXPECT_THAT(e.of("there")["seen"].get<std::string>(), HasSubstr("unknown host"));
}

TEST(DoctorReach, OtherProgramIsNoProblem) {
  const door other;
  other.open(8);
  const examination e = reach(other.address());
  EXPECT_EQ(e.code, 0) << e.report;
  EXPECT_EQ(e.of("there")["severity"], "hint");
  EXPECT_THAT(e.of("there")["seen"].get<std::string>(), HasSubstr("no doctor"));
}

/// A doctor that listens, and where.
struct listening {
  explicit listening(std::vector<std::string> options = {}) : command(argv(std::move(options))) {
    const std::string mark = "--reach ";
    EXPECT_TRUE(command.wait_for(mark)) << command.report();
    soon(seconds(5), [&] { return command.wait_for("\n", 1, milliseconds(10)); });
    const std::string& text = command.err().empty() ? command.out() : command.err();
    const std::size_t colon = text.rfind(':', text.find('\n', text.find(mark)));
    where = "127.0.0.1:" + std::to_string(std::atoi(text.c_str() + colon + 1));
  }
  static std::vector<std::string> argv(std::vector<std::string> options) {
    options.insert(options.begin(), {CROSSWARP_COMMAND, "doctor", "--listen", "0"});
    return options;
  }
  process command;
  std::string where;
};

TEST(DoctorReach, ThereAndBack) {
  listening l;
  const examination e = reach(l.where);
  EXPECT_EQ(e.code, 0) << e.report;
  EXPECT_THAT(e.of("there")["seen"].get<std::string>(), HasSubstr("round trip"));
  EXPECT_EQ(e.of("there")["severity"], "ok");
  EXPECT_EQ(e.of("back")["severity"], "ok");
  ASSERT_TRUE(l.command.wait(limit));
  EXPECT_EQ(l.command.code(), 0) << l.command.report();
  EXPECT_THAT(l.command.out(), HasSubstr("from 127.0.0.1"));
}

TEST(DoctorReach, ListenerSpeaksJsonToo) {
  listening l({"--json"});
  EXPECT_EQ(reach(l.where).code, 0);
  const examination e = finish(l.command);
  EXPECT_EQ(e.of("in")["severity"], "ok");
  EXPECT_EQ(e.of("out")["severity"], "ok");
}

TEST(DoctorReach, StrangersDoNotKeepTheListenerFromItsWork) {
  listening l;
  const auto port = static_cast<std::uint16_t>(std::stoi(l.where.substr(l.where.find(':') + 1)));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  for (const std::string& noise :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1000, '\xff')}) {
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    [[maybe_unused]] const ssize_t n = send(s, noise.data(), noise.size(), MSG_NOSIGNAL);
    close(s);
  }
  EXPECT_EQ(reach(l.where).code, 0);
  ASSERT_TRUE(l.command.wait(limit));
  EXPECT_EQ(l.command.code(), 0) << l.command.report();
}

TEST(DoctorReach, NobodyComes) {
  process p({CROSSWARP_COMMAND, "doctor", "--listen", "0", "--timeout", "1"});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 1) << p.report();
  EXPECT_THAT(p.out(), HasSubstr("nobody came"));
}

/// Another doctor that finds the way back closed.
void answer_as_if_behind_a_firewall(int listening) {
  char word[64];
  const int s = accept(listening, nullptr, nullptr);
  const auto hear = [&] { return recv(s, word, sizeof(word), MSG_WAITALL) == sizeof(word); };
  const auto say = [&](const std::string& text) {
    std::memset(word, 0, sizeof(word));
    text.copy(word, sizeof(word) - 1);
    [[maybe_unused]] const ssize_t n = send(s, word, sizeof(word), MSG_NOSIGNAL);
  };
  if (hear()) say("crosswarp doctor 1");
  while (hear() && std::string(word) != "back") say(word);
  say("back 2 Connection timed out");
  hear();
  close(s);
}

TEST(DoctorReach, OneWayOnlyIsAProblem) {
  const door other;
  other.open(8);
  std::thread behind([&] { answer_as_if_behind_a_firewall(other.fd()); });
  const examination e = reach(other.address());
  behind.join();
  EXPECT_EQ(e.code, 1) << e.report;
  EXPECT_EQ(e.of("there")["severity"], "ok");
  EXPECT_EQ(e.of("back")["severity"], "problem");
  EXPECT_THAT(e.of("back")["remedy"].get<std::string>(), HasSubstr("firewall"));
}

TEST(DoctorReach, TakenPortIsToldAtOnce) {
  const door taken;
  taken.open(1);
  const std::string port = taken.address().substr(taken.address().find(':') + 1);
  process p({CROSSWARP_COMMAND, "doctor", "--listen", port});
  ASSERT_TRUE(p.wait(limit));
  EXPECT_EQ(p.code(), 2) << p.report();
  EXPECT_THAT(p.err(), HasSubstr("in use"));
}

}  // namespace
