// The bootstrap between processes: every rank keeps a connection to one server, which runs in the
// launcher or in rank 0. It passes small messages at the start, and by its connections it knows
// who is alive.
#pragma once

#include <memory>
#include <optional>

#include "socket.hpp"

namespace crosswarp::world_impl {

enum message : std::uint32_t {
  hello = 0x43573031,  // server: nonce
  join,                // client: world, rank, size, nonce, proof
  welcome,             // server: host rank, proof
  reject,              // server: reason
  gather,              // client: number, timeout, bytes
  gathered,            // server: number, everybody's bytes
  given_up,            // server: number, absent rank
  put_key,             // client: key, value
  get_key,             // client: key
  value_of,            // server: key, value
  broken,              // both: status, rank, why
  bye,                 // client: leaves in good order
  quit,                // both: the exit code of all processes, whether it is a failure
};
/// Of a message from a member; strangers get `stranger_limit` until they have proven themselves.
inline constexpr std::size_t member_limit = 256U << 20U;
inline constexpr std::size_t stranger_limit = 256;

inline frame quit_frame(std::uint32_t code, bool failed) {
  return {quit, packer().u32(code).u32(failed ? 1 : 0).take()};
}

using nonce = std::array<std::byte, 16>;

/// What a rank proves when it joins, and the server when it answers.
bytes join_statement(const nonce& server, const nonce& client, std::uint32_t world,
                     std::uint32_t rank, std::uint32_t size);
bytes welcome_statement(const nonce& server, const nonce& client);

/// Serves all worlds of one job. Its thread is started by the constructor, joined by the
/// destructor.
class star_server {
 public:
  /// `host_rank`: the rank in whose process the server runs, -1 in a launcher.
  star_server(listener where, int size, const secret_key& secret, int host_rank);
  ~star_server();
  star_server(const star_server&) = delete;
  star_server& operator=(const star_server&) = delete;

  [[nodiscard]] const std::string& address() const noexcept;
  /// Rank `rank`'s process has ended; where it had not left, its worlds are broken.
  void rank_gone(int rank, const std::string& why);
  /// The rank whose loss or abort broke a world of this job first, or who ended the job before
  /// that; -1 while none has.
  [[nodiscard]] int first_culprit() const noexcept;
  /// The code with which that rank ended the job, if it did so of its own will.
  [[nodiscard]] std::optional<int> chosen_code() const noexcept;

  class impl;

 private:
  std::unique_ptr<impl> impl_;
};

/// Joins the `world`-th world of this process; keeps `hosted` alive as long as itself.
std::shared_ptr<bootstrap> join_star(const std::string& address, const secret_key& secret,
                                     int world, int rank, int size, nanoseconds timeout,
                                     std::shared_ptr<star_server> hosted = nullptr);

}  // namespace crosswarp::world_impl
