#include "write.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <tuple>

#include "crosswarp/error.hpp"
#include "proxy/decode.hpp"

namespace crosswarp::trace {
namespace {

const char* category(trace_kind k) noexcept {
  constexpr const char* names[] = {"command", "wait",   "proxy",  "engine",
                                   "host",    "mapped", "kernel", "socket"};
  return names[static_cast<std::size_t>(k)];
}

const char* name_of(const trace_record& r) noexcept {
  constexpr const char* engine[] = {"put",   "put small", "get",       "atomic", "fence",
                                    "flush", "barrier",   "broadcast", "reduce", "progress"};
  constexpr const char* host[] = {"start",    "barrier",         "allgather", "put",  "get",
                                  "allocate", "register memory", "launch",    "sync", "finish"};
  constexpr const char* socket[] = {"connect", "accept", "first byte", "close"};
  switch (r.kind) {
    case trace_kind::command:
    case trace_kind::proxy:
    case trace_kind::mapped:
      return proxy_impl::name_of(static_cast<device::proxy_call>(r.what));
    case trace_kind::wait:
      return "wait";
    case trace_kind::engine:
      return engine[r.what];
    case trace_kind::host:
      return host[r.what];
    case trace_kind::kernel:
      return "kernel";
    case trace_kind::socket:
      return socket[r.what];
  }
  return "";
}

/// Events of one lane lie side by side or inside of one another, as viewers want them.
class lanes {
 public:
  /// Asked for events in the order of their beginning, longest first.
  std::size_t place(const trace_record& r) {
    for (std::size_t i = 0;; ++i) {
      if (i == open_.size()) open_.emplace_back();
      auto& lane = open_[i];
      while (!lane.empty() && lane.back() <= r.begin) lane.pop_back();
      if (lane.empty() || lane.back() >= r.end) {
        lane.push_back(r.end);
        return i;
      }
    }
  }

 private:
  std::vector<std::vector<std::uint64_t>> open_;  // by lane: ends of what has begun
};

class file {
 public:
  explicit file(const std::string& path) : path_(path), out_(std::fopen(path.c_str(), "we")) {
    if (!out_) fail();
  }
  ~file() {
    if (out_) remove_what_is_there();
  }
  file(const file&) = delete;
  file& operator=(const file&) = delete;

  template <class... Parts>
  void print(const char* format, Parts... parts) {
    if (std::fprintf(out_.get(), format, parts...) < 0) fail();
  }
  void text(const char* what) {
    if (std::fputs(what, out_.get()) < 0) fail();
  }
  void close() {
    // What was buffered may be what finds the disk full.
    if (std::fflush(out_.get()) != 0) fail();
    if (std::fclose(out_.release()) != 0) fail();
  }

 private:
  [[noreturn]] void fail() { throw error::from_errno(errno, "trace", path_); }
  void remove_what_is_there() noexcept {
    struct stat s {};
    if (fstat(fileno(out_.get()), &s) == 0 && S_ISREG(s.st_mode)) unlink(path_.c_str());
  }
  struct closer {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, closer> out_;
};

double us(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

/// As text inside of a JSON string.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

class writer {
 public:
  explicit writer(file& out) : out_(out) {}

  void write(const rank_events& rank) {
    name(rank.rank, 0, "process_name", "rank " + std::to_string(rank.rank) + ", " + rank.where);
    next_track_ = 1;
    std::map<std::pair<trace_kind, std::uint32_t>, lanes> by_source;
    std::map<std::tuple<trace_kind, std::uint32_t, std::size_t>, int> tracks;
    std::vector<trace_record> all = rank.events.all;
    std::sort(all.begin(), all.end(), [](const trace_record& a, const trace_record& b) {
      return std::pair(a.begin, b.end) < std::pair(b.begin, a.end);
    });
    for (const trace_record& r : all) {
      // What a kernel does and what it waits for belong together.
      const bool by_kernel = r.kind == trace_kind::wait || r.kind == trace_kind::mapped;
      const trace_kind source = by_kernel ? trace_kind::command : r.kind;
      const std::size_t lane = by_source[{source, r.block}].place(r);
      int& track = tracks[{source, r.block, lane}];
      if (track == 0) {
        track = next_track_++;
        name(rank.rank, track, "thread_name", title(source, r.block, lane));
      }
      event(rank.rank, track, r);
    }
  }

 private:
  static std::string title(trace_kind source, std::uint32_t block, std::size_t lane) {
    std::string text = source == trace_kind::command ? "block " + std::to_string(block)
                                                     : std::string(category(source));
    if (source == trace_kind::socket) text += " thread " + std::to_string(block);
    if (lane > 0) text += " (" + std::to_string(lane + 1) + ")";
    return text;
  }
  void separate() { out_.print("%s\n", std::exchange(first_, false) ? "" : ","); }
  void name(int rank, int track, const char* what, const std::string& text) {
    separate();
    out_.print(R"({"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"name":"%s"}})", rank, track,
               what, escape(text).c_str());
  }
  void event(int rank, int track, const trace_record& r) {
    separate();
    out_.print(
        R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"cat":"%s","name":"%s","args":{)", rank,
        track, us(r.begin), us(r.end - r.begin), category(r.kind), name_of(r));
    out_.print(R"("status":"%s")", to_string(static_cast<status>(r.outcome)));
    if (r.pe >= 0) out_.print(R"(,"pe":%d)", r.pe);
    if (r.bytes > 0) out_.print(R"(,"bytes":%llu)", static_cast<unsigned long long>(r.bytes));
    if (r.waited_ns > 0) out_.print(R"(,"slot_wait_us":%.3f)", r.waited_ns * 1e-3);
    out_.text("}}");
    if (r.id == 0) return;
    // An arrow from the kernel's call to the host's work for it.
    const bool from = r.kind == trace_kind::command;
    separate();
    out_.print(R"({"ph":"%s","pid":%d,"tid":%d,"ts":%.3f,"cat":"command","name":"command",)"
               R"("id":"%d.%llx"%s})",
               from ? "s" : "f", rank, track, us(r.begin), rank,
               static_cast<unsigned long long>(r.id), from ? "" : R"(,"bp":"e")");
  }

  file& out_;
  bool first_ = true;
  int next_track_ = 1;
};

}  // namespace

void write_json(const std::string& path, const std::vector<rank_events>& ranks) {
  std::uint64_t dropped = 0;
  for (const rank_events& rank : ranks) dropped += rank.events.dropped;
  file out(path);
  out.print(R"({"displayTimeUnit":"ns","otherData":{"crosswarp":"%s","ranks":%zu,"dropped":%llu},)",
            CROSSWARP_VERSION, ranks.size(), static_cast<unsigned long long>(dropped));
  out.text("\n\"traceEvents\":[");
  writer w(out);
  for (const rank_events& rank : ranks) w.write(rank);
  out.text("\n]}\n");
  out.close();
}

void make_way(const std::string& path, const char* who_named_it) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) throw error::from_errno(errno, who_named_it, path);
  struct stat s {};
  const bool is_file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
  close(fd);
  if (is_file) unlink(path.c_str());
}

std::string with_part(const std::string& path, const std::string& part) {
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.rfind('.');
  const bool has_suffix =
      dot != std::string::npos && dot > 0 && (slash == std::string::npos || dot > slash + 1);
  const std::size_t at = has_suffix ? dot : path.size();
  return path.substr(0, at) + "." + part + path.substr(at);
}

}  // namespace crosswarp::trace
