// A rank whose kernel talks to others by commands, for the tests of what goes wrong meanwhile.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "crosswarp/world_launch.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

namespace {

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Asks rank `mortal` until it does not answer; then what the others and the queue do.
struct outlive {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<char> memory,
                        int mortal, cw::status* out) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    std::uint64_t old = 0;
    const auto ask = [&](int pe) {
      return q.atomic(me, dev::amo::fetch, 8, pe, memory.remote(), 0, 0, old);
    };
    cw::status s = cw::status::ok;
    while (s == cw::status::ok) {
      s = q.put_nbi(me, mortal, memory.remote(64), memory.local() + 64, 100'000);
      if (s == cw::status::ok) s = ask(mortal);
    }
    out[0] = s;
    for (int i = 0; i < 20 && out[1] == cw::status::ok; ++i) out[1] = ask(1);
    out[2] = ask(mortal);
    out[3] = q.get(me, mortal, memory.remote(64), memory.local() + 64, 1000);
    (void)q.quiet(me);     // tells of the puts that nobody waited for
    out[4] = q.quiet(me);  // and that was all
  }
};

/// Rank 2 dies; rank 0 has commands under way to it; rank 1 is only there.
int lose(cw::world& w) {
  cw::symmetric_buffer<char> memory(w, 200'000);
  w.barrier();
  if (w.rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raise(SIGKILL);
  }
  signal(SIGTERM, SIG_IGN);  // to report although the launcher ends the job
  if (w.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return 9;
  }
  cw::buffer<cw::status> out(w.options().device, 5);
  cw::launch(w.stream(), {}, outlive{}, w.device(), memory.device(), 2, out.data());
  try {
    w.stream().sync();
    say("the host noticed nothing");
  } catch (const cw::error& e) {
    say(e.what());
  }
  std::string text = "kernel:";
  for (const cw::status s : out.read()) text += std::string(" ") + to_string(s);
  say(text);
  return 9;
}

/// Adds one to a word of the other rank until the time is over.
struct chatter {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w,
                        dev::symmetric<std::uint64_t> words, std::uint64_t ns, cw::status* out,
                        std::uint64_t* count) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    const std::uint64_t begin = dev::now_ns();
    std::uint64_t old = 0;
    while (*out == cw::status::ok && dev::now_ns() - begin < ns) {
      *out = q.atomic(me, dev::amo::add, 8, 1 - w.rank, words.remote(), 1, 0, old);
      if (*out == cw::status::ok) ++*count;
    }
    if (*out == cw::status::ok) *out = q.quiet(me);
  }
};

int chat(cw::world& w, int seconds) {
  cw::symmetric_buffer<std::uint64_t> words(w, 1);
  cw::buffer<cw::status> out(w.options().device, 1);
  cw::buffer<std::uint64_t> count(w.options().device, 1);
  w.barrier();
  say("talking");
  cw::launch(w.stream(), {}, chatter{}, w.device(), words.device(),
             static_cast<std::uint64_t>(seconds) * 1'000'000'000, out.data(), count.data());
  w.stream().sync();
  if (out.read()[0] != cw::status::ok) {
    say(std::string("kernel: ") + to_string(out.read()[0]));
    return 8;
  }
  const auto counts = w.allgather(count.read()[0]);
  if (words.read()[0] != counts[static_cast<std::size_t>(1 - w.rank())]) {
    say("some got lost");
    return 7;
  }
  say("all arrived");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto o = cw::world_options::from_environment();
    o.proxy.path = cw::path_choice::proxy;
    cw::world w(o);
    if (argc > 1 && std::strcmp(argv[1], "lose") == 0) return lose(w);
    if (argc > 2 && std::strcmp(argv[1], "chat") == 0) return chat(w, std::stoi(argv[2]));
    return 2;
  } catch (const cw::error& e) {
    say(std::string("error: ") + e.what());
    return 9;
  }
}
