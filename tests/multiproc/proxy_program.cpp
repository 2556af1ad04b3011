// A rank whose kernel talks to others by commands, for the tests of what goes wrong meanwhile.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "crosswarp/world_launch.hpp"
#include "proxy_queues.hpp"

namespace cw = crosswarp;
namespace dev = crosswarp::device;

namespace {

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

cw::world_options proxied() {
  auto o = cw::world_options::from_environment();
  if (o.proxy.path != cw::path_choice::rdma) o.proxy.path = cw::path_choice::proxy;
  return o;
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
    if (out[1] != cw::status::ok) return;  // each quiet would take as long
    (void)q.quiet(me);                     // tells of the puts that nobody waited for
    out[4] = q.quiet(me);                  // and that was all
  }
};

/// Rank 2 dies; rank 0 has commands under way to it; rank 1 is only there, or it is `mute`.
int lose(cw::world& w, bool mute) {
  cw::symmetric_buffer<char> memory(w, 200'000);
  w.barrier();
  if (w.rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    die_outside_of_engine(w);
  }
  signal(SIGTERM, SIG_IGN);  // to report although the launcher ends the job
  if (w.rank() == 1) {
    if (mute) raise(SIGSTOP);
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

/// What a chat came to.
struct talk {
  cw::status outcome;
  std::uint64_t count;       ///< commands
  std::uint64_t late;        ///< of them, those that were not waited for to the end
  std::uint64_t longest_ns;  ///< that one of them took or was waited for
};

/// Adds one to a word of the other rank until the time is over. Waits for each answer as the world
/// does; or for `patience_ns`, and then goes on without it: there are slots enough for what is
/// late.
struct chatter {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::proxy_memory queues,
                        dev::symmetric<std::uint64_t> words, std::uint64_t ns,
                        std::uint64_t patience_ns, talk* t) const {
    const auto limits = patience_ns == 0 ? w.limits : w.limits.within(patience_ns);
    dev::proxy_queue q(queues, 0, limits);
    const auto me = ctx.thread();
    const std::uint64_t begin = dev::now_ns();
    std::uint64_t old = 0;
    for (std::uint64_t now = begin; t->outcome == cw::status::ok && now - begin < ns;) {
      t->outcome = q.atomic(me, dev::amo::add, 8, 1 - w.rank, words.remote(), 1, 0, old);
      if (patience_ns != 0 && t->outcome == cw::status::timeout) {
        t->outcome = cw::status::ok;
        ++t->late;
      }
      if (t->outcome == cw::status::ok) ++t->count;
      const std::uint64_t after = dev::now_ns();
      if (after - now > t->longest_ns) t->longest_ns = after - now;
      now = after;
    }
    if (t->outcome == cw::status::ok) t->outcome = w.proxy.queue(0).quiet(me);
  }
};

/// Whether all that the others said is here.
int compare(cw::world& w, const cw::symmetric_buffer<std::uint64_t>& words, const talk& mine) {
  if (mine.outcome != cw::status::ok) {
    say(std::string("kernel: ") + to_string(mine.outcome));
    return 8;
  }
  const auto counts = w.allgather(mine.count);
  if (words.read()[0] != counts[static_cast<std::size_t>(1 - w.rank())]) {
    say("some got lost");
    return 7;
  }
  say("all arrived");
  say("rank " + std::to_string(w.rank()) + ": " + std::to_string(mine.count) + " said, " +
      std::to_string(mine.late) + " late, the longest took " +
      std::to_string(mine.longest_ns / 1'000'000) + " ms");
  return 0;
}

void talk_for(cw::world& w, const cw::symmetric_buffer<std::uint64_t>& words, cw::buffer<talk>& out,
              int seconds, int patience_ms) {
  say("talking");
  cw::launch(w.stream(), {}, chatter{}, w.device(), queues_of(w), words.device(),
             static_cast<std::uint64_t>(seconds) * 1'000'000'000,
             static_cast<std::uint64_t>(patience_ms) * 1'000'000, out.data());
  w.stream().sync();
}

int chat(cw::world& w, int seconds, int patience_ms) {
  cw::symmetric_buffer<std::uint64_t> words(w, 1);
  cw::buffer<talk> out(w.options().device, 1);
  w.barrier();
  talk_for(w, words, out, seconds, patience_ms);
  return compare(w, words, out.read()[0]);
}

struct ask_often {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<char> memory,
                        cw::status* out) const {
    auto q = w.proxy.queue(0);
    std::uint64_t old = 0;
    for (int i = 0; i < 100; ++i) {
      *out = q.atomic(ctx.thread(), dev::amo::add, 8, 1, memory.remote(), 1, 0, old);
    }
  }
};

/// Rank 0 asks rank 1, and again after a while in which nobody says anything.
int pause(cw::world& w, int seconds) {
  cw::symmetric_buffer<char> memory(w, 8);
  cw::buffer<cw::status> out(w.options().device, 1);
  const auto ask = [&] {
    if (w.rank() != 0) return;
    cw::launch(w.stream(), {}, ask_often{}, w.device(), memory.device(), out.data());
    w.stream().sync();
    say(std::string("kernel: ") + to_string(out.read()[0]));
  };
  ask();
  w.barrier();
  say("pausing");
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  ask();
  w.barrier();
  return 0;
}

/// Commands that cannot be carried out, and nobody waits for them.
struct misuse {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, cw::status* out) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    constexpr std::uint64_t nowhere = std::uint64_t{1} << 40U;
    for (int i = 0; i < 1000 && *out == cw::status::ok; ++i) {
      *out = q.put_value(me, 1, {nowhere}, 7, 8);
      if (*out == cw::status::ok) *out = q.atomic_nbi(me, dev::amo::add, 8, 1, {nowhere}, 1);
      if (*out == cw::status::ok) *out = q.put_value(me, w.size + i, {0}, 7, 8);
    }
    if (*out == cw::status::ok) *out = q.quiet(me);
  }
};

int misbehave(cw::world& w) {
  cw::buffer<cw::status> out(w.options().device, 1);
  if (w.rank() == 0) {
    cw::launch(w.stream(), {}, misuse{}, w.device(), out.data());
    w.stream().sync();
    say(std::string("kernel: ") + to_string(out.read()[0]));
  }
  w.barrier();
  return 0;
}

/// As in a sandbox: the kernel of the operating system copies nothing between places of a process.
bool forbid_copies() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog all{static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

struct exchange_private {
  CW_FN void operator()(const dev::kernel_context& ctx, dev::world w, dev::symmetric<char> memory,
                        const char* from, char* to, std::size_t bytes, cw::status* out) const {
    auto q = w.proxy.queue(0);
    const auto me = ctx.thread();
    for (int i = 0; i < 10 && *out == cw::status::ok; ++i) {
      *out = q.put(me, 1 - w.rank, memory.remote(), from, bytes);
      if (*out == cw::status::ok) *out = q.quiet(me);
      if (*out == cw::status::ok) *out = q.get(me, 1 - w.rank, memory.remote(), to, bytes);
    }
  }
};

/// Puts from memory that is no region's and gets into such memory.
int believe(cw::world& w) {
  constexpr std::size_t bytes = 1000;
  cw::symmetric_buffer<char> memory(w, bytes);
  const std::vector<char> letters(bytes, static_cast<char>('a' + w.rank()));
  cw::buffer<char> from(w.options().device, std::span<const char>(letters));
  cw::buffer<char> to(w.options().device, bytes);
  cw::buffer<cw::status> out(w.options().device, 1);
  w.barrier();
  cw::launch(w.stream(), {}, exchange_private{}, w.device(), memory.device(), from.data(),
             to.data(), bytes, out.data());
  w.stream().sync();
  w.barrier();
  const bool right = out.read()[0] == cw::status::ok && to.read() == letters;
  say(right ? "all copied" : "not copied");
  return right ? 0 : 7;
}

/// Threads that leave nothing of a core to others.
class crowd {
 public:
  explicit crowd(const cpu_set_t& where) {
    for (int i = 0; i < 3; ++i) {
      spinning_.emplace_back([this, where] {
        sched_setaffinity(0, sizeof(where), &where);
        while (!enough_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~crowd() {
    enough_ = true;
    for (std::thread& t : spinning_) t.join();
  }
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;

 private:
  std::atomic<bool> enough_{false};
  std::vector<std::thread> spinning_;
};

/// Rank 0 talks to rank 1, whose library threads get only what others leave of a crowded core.
int starve(int seconds, int patience_ms) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  cpu_set_t one;
  CPU_ZERO(&one);
  int first = 0;
  while (CPU_ISSET(first, &all) == 0) ++first;
  CPU_SET(first, &one);
  // A thread that is made has the affinity and the policy of the one that makes it.
  const auto set = [](const cpu_set_t& where, int policy) {
    const sched_param none{};
    return sched_setaffinity(0, sizeof(where), &where) == 0 &&
           sched_setscheduler(0, policy, &none) == 0;
  };
  const bool starved = std::getenv("CROSSWARP_RANK") == std::string("1");
  if (starved && !set(one, SCHED_IDLE)) return 3;
  cw::world w(proxied());
  if (starved && !set(all, SCHED_OTHER)) return 3;
  cw::symmetric_buffer<std::uint64_t> words(w, 1);
  cw::buffer<talk> out(w.options().device, 1);
  w.barrier();
  if (starved) {
    const crowd c(one);
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
  } else {
    talk_for(w, words, out, seconds, patience_ms);
  }
  return compare(w, words, out.read()[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string behaviour = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return argc > i ? std::stoi(argv[i]) : 0; };
  try {
    // Before there are threads: what comes later has it too.
    if (behaviour == "sandboxed" && !forbid_copies()) return 3;
    if (behaviour == "starve") return starve(number(2), number(3));
    cw::world w(proxied());
    if (behaviour == "lose") return lose(w, argc > 2 && argv[2] == std::string("mute"));
    if (behaviour == "misuse") return misbehave(w);
    if (behaviour == "sandboxed") return believe(w);
    if (behaviour == "pause") return pause(w, number(2));
    if (behaviour == "chat") return chat(w, number(2), number(3));
    return 2;
  } catch (const cw::error& e) {
    say(std::string("error: ") + e.what());
    return 9;
  }
}
