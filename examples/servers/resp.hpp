// The engine of the RESP server: redis's protocol, over a table in device memory.
#pragma once

#include "resp_commands.hpp"

namespace servers {

class resp {
 public:
  resp() = default;
  CW_FN resp(const table& keys, const resp_options& o) noexcept : keys_(keys), options_(o) {}

  [[nodiscard]] CW_FN const table& keys() const noexcept { return keys_; }
  [[nodiscard]] CW_FN const resp_options& options() const noexcept { return options_; }

  /// Carries out the complete requests at the start of `in`, `most` at most, whose answers fit into
  /// `out`.
  /// `in`:    what came and was not consumed yet, up to options().request_bytes of it.
  /// `out`:   answers to long requests wait until it has options().answer_bytes.
  /// Callers: one thread for each connection; several connections at once on one table.
  CW_FN step_result step(resp_connection& c, text in, char* out, std::size_t room,
                         std::size_t most = ~std::size_t{0}) const noexcept {
    step_result r;
    writer answers(out, room);
    shard_locks locks(keys_);
    sweep(locks);
    for (int since_release = 1; most > 0 && r.consumed < in.size && !r.close;
         ++since_release, --most) {
      const std::size_t start = answers.written();
      if (answers.left() < small_answer) {
        r.waits = true;
        break;
      }
      if (since_release % requests_per_hold == 0) locks.release();
      // Words are worked on at the end of `out`.
      const std::size_t aside = in[r.consumed] == '*' ? 0 : room_for_words(options_.line_bytes);
      const std::size_t work = aside < answers.left() / 2 ? aside : answers.left() / 2;
      const request q = parse_request(in.from(r.consumed), options_, c, out + (room - work), work);
      if (q.state == parse_state::wrong) {
        refuse(answers, q);
        r.close = true;
        r.consumed = in.size;
        break;
      }
      if (q.state != parse_state::complete) {
        r.waits = q.state == parse_state::no_room;
        break;
      }
      if (q.args.count > 0) {
        writer answer(out + start, room - start - work);
        const verdict v = answer_to(q, locks, answer);
        if (v == verdict::again) {
          r.waits = true;
          break;
        }
        answers.back_to(start + answer.written());
        r.close = v == verdict::quit;
      }
      r.consumed += q.bytes;
    }
    locks.release();
    if (keys_.with_rubbish() != 0) r.waits = true;
    r.produced = answers.written();
    return r;
  }

 private:
  /// A part of what is still to be released of values that were removed: nobody waits for a long
  /// one. Whoever comes next does the next part.
  CW_FN void sweep(shard_locks& locks) const noexcept {
    constexpr int blocks = 256;
    const std::uint64_t dirty = keys_.with_rubbish();
    if (dirty == 0) return;
    const unsigned one = lowest_bit(dirty);
    if (locks.hold(std::uint64_t{1} << one, true)) keys_.sweep(keys_.at(one), blocks);
    locks.release();
  }

  /// Others who want the same lock get it after so many requests at the latest.
  static constexpr int requests_per_hold = 64;

  [[nodiscard]] CW_FN verdict answer_to(const request& q, shard_locks& locks,
                                        writer& answer) const noexcept {
    resp_call call{keys_, locks, q.args, answer, options_};
    const verdict v = resp_carry_out(call);
    if (!answer.overrun()) return v;
    if (answer.written() <= options_.answer_bytes) return verdict::again;
    answer.back_to(0);
    put_error(answer, "ERR the answer is too long: ask for less");
    return verdict::done;
  }
  CW_FN static void refuse(writer& out, const request& q) noexcept {
    out.put("-ERR Protocol error: ");
    out.put(q.error);
    if (q.unexpected != 0) {
      out.put(q.unexpected);
      out.put('\'');
    }
    out.put("\r\n");
  }

  table keys_;
  resp_options options_;
};

}  // namespace servers
