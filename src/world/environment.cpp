// Which launcher started this process, and how its ranks meet.
#include <unistd.h>

#include <atomic>

#include "crosswarp/options.hpp"
#include "pmix_exchange.hpp"
#include "star.hpp"

namespace crosswarp::world_impl {
namespace {

/// The n-th world of this process meets the n-th world of the others.
int next_world() {
  static std::atomic<int> count{0};
  return count.fetch_add(1);
}

struct place {
  int rank;
  int size;
};

place read_place(const char* rank_name, const char* size_name) {
  const long rank = options::read_integer(rank_name).value_or(-1);
  const long size = options::read_integer(size_name).value_or(-1);
  if (size < 1 || rank < 0 || rank >= size) {
    throw error(errc::invalid_argument, "world",
                std::string(rank_name) + "=" + std::to_string(rank) + " and " + size_name + "=" +
                    std::to_string(size) + " name no rank of a job");
  }
  return {static_cast<int>(rank), static_cast<int>(size)};
}

/// `crosswarp run`: the server is in the launcher.
std::shared_ptr<bootstrap> join_launcher(nanoseconds timeout) {
  const place p = read_place("CROSSWARP_RANK", "CROSSWARP_SIZE");
  const auto secret = options::read("CROSSWARP_SECRET");
  if (!secret) throw error(errc::invalid_argument, "world", "CROSSWARP_SECRET is not set");
  return join_star(*options::read("CROSSWARP_BOOTSTRAP"), secret_from_hex(*secret), next_world(),
                   p.rank, p.size, timeout);
}

/// mpirun, srun: rank 0 runs the server and publishes its address and the secret through PMIx,
/// which admits only members of the job.
std::shared_ptr<bootstrap> join_pmix(nanoseconds timeout) {
  const int world = next_world();
  pmix_exchange pmix;
  const std::string key = "crosswarp.bootstrap." + std::to_string(world);
  if (pmix.rank() != 0) {
    const std::string where = pmix.receive(key, timeout);
    const std::size_t space = where.find(' ');
    return join_star(where.substr(0, space), secret_from_hex(where.substr(space + 1)), 0,
                     pmix.rank(), pmix.size(), timeout);
  }
  const secret_key secret = make_secret();
  const bool one_machine = pmix.local_size() == pmix.size();
  auto server =
      std::make_shared<star_server>(one_machine ? listen_tcp("127.0.0.1", 0, "127.0.0.1")
                                                : listen_tcp("0.0.0.0", 0, advertised_host()),
                                    pmix.size(), secret, 0);
  pmix.publish(key, server->address() + " " + to_hex(secret), timeout);
  return join_star(server->address(), secret, 0, 0, pmix.size(), timeout, server);
}

bool offered_by_torchrun() {
  return options::read("WORLD_SIZE") && options::read("RANK");
}

/// torchrun: rank 0 runs the server. On one machine at a Unix name that only this user's
/// processes may answer; else at a port next to the master's, with the secret from the
/// environment.
std::shared_ptr<bootstrap> join_torchrun(nanoseconds timeout) {
  const place p = read_place("RANK", "WORLD_SIZE");
  const int world = next_world();
  const long local = options::read_integer("LOCAL_WORLD_SIZE").value_or(p.size);
  const std::string host = options::read("MASTER_ADDR").value_or("127.0.0.1");
  const long port = options::read_integer("MASTER_PORT").value_or(29500);
  const std::string run = options::read("TORCHELASTIC_RUN_ID").value_or("none");
  const std::string restart = options::read("TORCHELASTIC_RESTART_COUNT").value_or("0");
  const auto given = options::read("CROSSWARP_SECRET");
  secret_key secret{};
  std::string address;
  listener where;
  if (local == p.size) {
    const std::string name = "crosswarp-" + std::to_string(geteuid()) + "-" + std::to_string(port) +
                             "-" + run + "-" + restart + "-" + std::to_string(world);
    address = "unix:@" + name;
    if (p.rank == 0) where = listen_unix(name);
  } else {
    if (!given) {
      throw error(errc::invalid_argument, "world",
                  "torchrun on several machines needs CROSSWARP_SECRET, the same 32 hex digits on "
                  "each of them");
    }
    const int mine = static_cast<int>(port) + 1 + world;
    address = "tcp:" + host + ":" + std::to_string(mine);
    if (p.rank == 0) where = listen_tcp("0.0.0.0", mine, host);
  }
  if (given) secret = secret_from_hex(*given);
  std::shared_ptr<star_server> server;
  if (p.rank == 0) {
    server = std::make_shared<star_server>(std::move(where), p.size, secret, 0);
  }
  return join_star(address, secret, 0, p.rank, p.size, timeout, server);
}

}  // namespace

bool environment_has_job() {
  return options::read("CROSSWARP_BOOTSTRAP") || pmix_exchange::offered() || offered_by_torchrun();
}

std::shared_ptr<bootstrap> make_environment_bootstrap(nanoseconds timeout) {
  if (options::read("CROSSWARP_BOOTSTRAP")) return join_launcher(timeout);
  if (pmix_exchange::offered()) return join_pmix(timeout);
  if (offered_by_torchrun()) return join_torchrun(timeout);
  if (const auto size = options::read_integer("CROSSWARP_SIZE"); size && *size != 1) {
    throw error(errc::invalid_argument, "world",
                "CROSSWARP_SIZE=" + std::to_string(*size) +
                    " without CROSSWARP_BOOTSTRAP: start the program with 'crosswarp run'");
  }
  return make_local_bootstraps(1).front();
}

}  // namespace crosswarp::world_impl
