/* The same put by plain UCX, to compare in one run: two processes, addresses over a socket pair;
   prints the median of several batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { batches = 31, rounds = 5000 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static void must(int good) {
  if (!good) exit(1);
}

static void tell(int fd, const void* bytes, size_t length) {
  must(write(fd, &length, sizeof(length)) == sizeof(length));
  must(write(fd, bytes, length) == (ssize_t)length);
}

static void* hear(int fd) {
  size_t length = 0;
  must(read(fd, &length, sizeof(length)) == sizeof(length));
  char* bytes = malloc(length);
  for (size_t done = 0; done < length;) {
    const ssize_t n = read(fd, bytes + done, length - done);
    must(n > 0);
    done += (size_t)n;
  }
  return bytes;
}

static void finish(ucp_worker_h worker, void* request) {
  if (request == NULL) return;
  must(!UCS_PTR_IS_ERR(request));
  while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
  ucp_request_free(request);
}

int main(void) {
  int fd[2];
  must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
  const pid_t child = fork();
  const int me = child == 0 ? 1 : 0;

  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                         .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64};
  ucp_context_h context;
  must(ucp_init(&params, NULL, &context) == UCS_OK);
  ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                       .thread_mode = UCS_THREAD_MODE_SINGLE};
  ucp_worker_h worker;
  must(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
  void* memory = NULL;
  must(posix_memalign(&memory, 4096, 4096) == 0);
  memset(memory, 0, 4096);
  ucp_mem_map_params_t map = {
      .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
      .address = memory,
      .length = 4096};
  ucp_mem_h handle;
  must(ucp_mem_map(context, &map, &handle) == UCS_OK);

  if (me == 1) {
    ucp_address_t* address;
    size_t length;
    void* key;
    must(ucp_worker_get_address(worker, &address, &length) == UCS_OK);
    tell(fd[1], address, length);
    must(ucp_rkey_pack(context, handle, &key, &length) == UCS_OK);
    tell(fd[1], key, length);
    tell(fd[1], &memory, sizeof(memory));
    char end;
    while (recv(fd[1], &end, 1, MSG_DONTWAIT) != 1) {
      for (int i = 0; i < 1000; ++i) ucp_worker_progress(worker);
    }
    _exit(0);
  }

  void* address = hear(fd[0]);
  void* packed = hear(fd[0]);
  void** there = hear(fd[0]);
  ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
  ucp_ep_h ep;
  ucp_rkey_h key;
  must(ucp_ep_create(worker, &to, &ep) == UCS_OK);
  must(ucp_ep_rkey_unpack(ep, packed, &key) == UCS_OK);
  const ucp_request_param_t plain = {.op_attr_mask = 0};
  double took[batches];
  for (int b = 0; b < batches; ++b) {
    const double begin = now_us();
    for (int i = 0; i < rounds; ++i) {
      long long word = i;
      finish(worker, ucp_put_nbx(ep, &word, 8, (uint64_t)*there, key, &plain));
      finish(worker, ucp_ep_flush_nbx(ep, &plain));
    }
    took[b] = (now_us() - begin) / rounds;
  }
  qsort(took, batches, sizeof(took[0]), by_value);
  printf("put_quiet_us %.4f\n", took[batches / 2]);
  must(write(fd[0], "x", 1) == 1);
  waitpid(child, NULL, 0);
  return 0;
}
