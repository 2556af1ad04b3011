// Kernels that were written for GPUnet.
#include <cstring>

#include "crosswarp/device/gpunet.hpp"
#include "support/socket_fixture.hpp"

using namespace calls;

namespace {

using uchar = unsigned char;
constexpr int BUF_SIZE = 3000;
constexpr int NR_MSG = 5;

// GPUnet's echo client, word for word but for the lines that say what they were.
struct gpuclient : dev::gpunet {  // __global__ void gpuclient(struct sockaddr_in *addr, ...) {
  using gpunet::gpunet;
  CW_FN void kernel(struct sockaddr_in* addr, int* tb_alloc_tbl, int nr_tb) const {
    int sock;                                   // __shared__ int sock;
    uchar* const buf = shared_memory<uchar>();  // __shared__ uchar buf[BUF_SIZE];
    int ret, i;

    while ((sock = gconnect_in(addr)) < 0) {
    };
    // assert(sock >= 0);
    fill(buf, nr_tb);  // so that there is something to compare

    for (i = 0; i < NR_MSG; i++) {
      int recved = 0, sent = 0;

      do {
        ret = gsend(sock, buf + sent, BUF_SIZE - sent);
        if (ret < 0) {
          goto out;
        } else {
          sent += ret;
        }
      } while (sent < BUF_SIZE);

      syncthreads();  // __syncthreads();

      do {
        ret = grecv(sock, buf + recved, BUF_SIZE - recved);
        if (ret < 0) {
          goto out;
        } else {
          recved += ret;
        }
      } while (recved < BUF_SIZE);

      syncthreads();  // __syncthreads();
    }
    check(buf, nr_tb, tb_alloc_tbl);

  out:
    BEGIN_SINGLE_THREAD_PART {
      single_thread_gclose(sock);
    }
    END_SINGLE_THREAD_PART;
  }

  CW_FN void fill(uchar* buf, int of) const {
    for (int i = context().thread_index(); i < BUF_SIZE; i += context().thread_count()) {
      buf[i] = static_cast<uchar>(i * of);
    }
    syncthreads();
  }
  CW_FN void check(const uchar* buf, int of, int* right) const {
    BEGIN_SINGLE_THREAD_PART {
      int n = 0;
      while (n < BUF_SIZE && buf[n] == static_cast<uchar>(n * of)) ++n;
      *right = n;
    }
    END_SINGLE_THREAD_PART;
  }
};

/// Sends back what comes until the peer ends.
void echo(peer p) {
  for (std::string some = p.read(1); !some.empty(); some = p.read(1)) p.write(some);
}

sockaddr_in system_name(const address& a) {
  sockaddr_in name{};
  const auto s = cw::tcp::to_system(a);
  std::memcpy(&name, &s.storage, sizeof(name));
  return name;
}

TEST_F(Socket, TheEchoClientOfGPUnetRunsAsItWasWritten) {
  const listening_peer there;
  std::thread serves([&] { echo(there.accept()); });
  const sockaddr_in name = system_name(there.name());
  const cw::buffer<sockaddr_in> addr(test_device(), std::span(&name, 1));
  const cw::buffer<int> right(test_device(), 1);
  cw::stream stream(test_device());
  cw::launch(stream, {.threads = 48, .shared_bytes = BUF_SIZE}, dev::gpunet_kernel<gpuclient>{},
             net().device(), addr.data(), right.data(), 7);
  stream.sync();
  serves.join();
  EXPECT_EQ(right.read()[0], BUF_SIZE);
  settle(0);
}

/// What a kernel of GPUnet's calls returned.
struct results {
  int listener, connected, accepted;
  int negative_send, negative_recv, none;
  int before, found, ready, other, after, received;
  char text[4];
};

struct all_calls : dev::gpunet {
  using gpunet::gpunet;
  CW_FN void kernel(const char* path, int bytes, results* all, dev::gpollfd* fds) const {
    results r{};
    char* const buf = shared_memory<char>();
    BEGIN_SINGLE_THREAD_PART {
      all->listener = single_thread_gbind(path, bytes);
    }
    END_SINGLE_THREAD_PART;
    r.listener = all->listener;
    r.connected = gconnect(path, bytes);
    r.accepted = gaccept(r.listener);
    r.none = gaccept_nb(r.listener);
    r.negative_send = gsend(r.connected, buf, -1);
    r.negative_recv = grecv(r.accepted, buf, -1);
    BEGIN_SINGLE_THREAD_PART {
      fds[0] = {r.accepted, POLLIN, 0};
      fds[1] = {r.connected, POLLIN | POLLOUT, 0};
      fds[2] = {-1, POLLIN, 0};
    }
    END_SINGLE_THREAD_PART;
    r.before = gpoll(fds, 1, 1'000'000);
    BEGIN_SINGLE_THREAD_PART {
      for (int i = 0; i < 4; ++i) buf[i] = "ping"[i];
    }
    END_SINGLE_THREAD_PART;
    gsend(r.connected, buf, 4);
    r.ready = gpoll(fds, 1);
    r.found = gpoll(fds, 3);
    r.other = fds[1].revents;
    r.after = fds[2].revents;
    syncthreads();
    r.received = grecv(r.accepted, buf, 4);
    BEGIN_SINGLE_THREAD_PART {
      for (int i = 0; i < 4; ++i) r.text[i] = buf[i];
      *all = r;
      single_thread_gclose(r.connected);
      single_thread_gclose(r.accepted);
      single_thread_gclose(r.listener);
    }
    END_SINGLE_THREAD_PART;
  }
};

TEST_F(Socket, CallsOfGPUnetDoWhatTheirNamesSay) {
  const std::string path = "@crosswarp-gpunet-" + std::to_string(getpid());
  const cw::buffer<char> name(test_device(), std::span(path.data(), path.size()));
  const cw::buffer<results> out(test_device(), 1);
  const cw::buffer<dev::gpollfd> fds(test_device(), 3);
  cw::stream stream(test_device());
  cw::launch(stream, {.threads = 48, .shared_bytes = 64}, dev::gpunet_kernel<all_calls>{},
             net().device(), name.data(), static_cast<int>(path.size()), out.data(), fds.data());
  stream.sync();
  const results r = out.read()[0];
  EXPECT_GE(r.listener, 0);
  EXPECT_GE(r.connected, 0);
  EXPECT_GE(r.accepted, 0);
  EXPECT_EQ(r.none, -EAGAIN);
  EXPECT_EQ(r.negative_send, -EINVAL) << "not a length of nearly 2^64";
  EXPECT_EQ(r.negative_recv, -EINVAL);
  EXPECT_EQ(r.before, 0) << "nothing to read yet";
  EXPECT_EQ(r.ready, 1);
  EXPECT_EQ(r.found, 3);
  EXPECT_EQ(r.other, POLLOUT);
  EXPECT_EQ(r.after, POLLNVAL);
  EXPECT_EQ(r.received, 4);
  EXPECT_EQ(std::string(r.text, 4), "ping");
  settle(0);
}

}  // namespace
