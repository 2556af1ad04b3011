// The commands of the RESP server: which there are, and those about the server itself.
#pragma once

#include "resp_sets.hpp"
#include "resp_strings.hpp"

namespace servers {

/// A name of at most 8 letters as one word, whatever their case; 0 for others.
CW_FN constexpr std::uint64_t word_of(text name) noexcept {
  if (name.size == 0 || name.size > 8 || name[0] == 0) return 0;  // zeroes before it would not show
  std::uint64_t w = 0;
  for (std::size_t i = 0; i < name.size; ++i) {
    w = w << 8U | static_cast<unsigned char>(lower(name[i]));
  }
  return w;
}

/// As COMMAND tells it: how many words a request has, negative when more may follow; which of them
/// are keys.
struct command_facts {
  std::int32_t words = 0;
  std::int32_t first_key = 0;
  std::int32_t last_key = 0;
  std::int32_t step = 0;
  bool writes = false;
};

CW_FN inline text command_names() noexcept {
  return "ping echo set get del exists incr decr mset mget lpush rpush lpop rpop lrange llen sadd "
         "spop scard hset hget zadd zpopmin dbsize flushall config command quit ";
}
inline constexpr int command_count = 28;

/// `words` is 0 when there is no such command.
CW_FN inline command_facts facts_of(std::uint64_t command) noexcept {
  switch (command) {
    case word_of("ping"):
    case word_of("command"):
    case word_of("flushall"):
    case word_of("quit"):
      return {-1, 0, 0, 0, command == word_of("flushall")};
    case word_of("config"):
      return {-2, 0, 0, 0, false};
    case word_of("dbsize"):
      return {1, 0, 0, 0, false};
    case word_of("echo"):
      return {2, 0, 0, 0, false};
    case word_of("get"):
    case word_of("llen"):
    case word_of("scard"):
      return {2, 1, 1, 1, false};
    case word_of("incr"):
    case word_of("decr"):
      return {2, 1, 1, 1, true};
    case word_of("hget"):
      return {3, 1, 1, 1, false};
    case word_of("lrange"):
      return {4, 1, 1, 1, false};
    case word_of("exists"):
    case word_of("mget"):
      return {-2, 1, -1, 1, false};
    case word_of("del"):
      return {-2, 1, -1, 1, true};
    case word_of("mset"):
      return {-3, 1, -1, 2, true};
    case word_of("lpop"):
    case word_of("rpop"):
    case word_of("spop"):
    case word_of("zpopmin"):
      return {-2, 1, 1, 1, true};
    case word_of("set"):
    case word_of("lpush"):
    case word_of("rpush"):
    case word_of("sadd"):
      return {-3, 1, 1, 1, true};
    case word_of("hset"):
    case word_of("zadd"):
      return {-4, 1, 1, 1, true};
    default:
      return {};
  }
}

CW_COLD CW_FN inline verdict resp_ping(resp_call& c) noexcept {
  if (c.args.count > 2) {
    put_arity_error(c.out, "ping");
  } else if (c.args.count == 2) {
    put_bulk(c.out, c.arg(1));
  } else {
    put_status(c.out, "PONG");
  }
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_flushall(resp_call& c) noexcept {
  const bool known =
      c.args.count == 1 || (c.args.count == 2 && (equal_in_any_case(c.arg(1), "SYNC") ||
                                                  equal_in_any_case(c.arg(1), "ASYNC")));
  if (!known) {
    put_syntax_error(c.out);
    return verdict::done;
  }
  if (!c.locks.hold(c.keys.all_shards(), c.writes)) return verdict::again;
  c.keys.clear();
  put_status(c.out, "OK");
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_unknown_subcommand(resp_call& c, text container) noexcept {
  c.out.put("-ERR unknown subcommand '");
  put_shown(c.out, c.arg(1).first(128));
  c.out.put("'. Try ");
  c.out.put(container);
  c.out.put(" HELP.\r\n");
  return verdict::done;
}

/// The settings that redis-benchmark asks for; a table has no others.
CW_COLD CW_FN inline verdict resp_config(resp_call& c) noexcept {
  if (!equal_in_any_case(c.arg(1), "GET")) return resp_unknown_subcommand(c, "CONFIG");
  if (c.args.count < 3) {
    put_arity_error(c.out, "config|get");
    return verdict::done;
  }
  bool save = false;
  bool append = false;
  for (argument_cursor a(c.args, 2); a.more();) {
    const text name = a.next();
    save |= equal_in_any_case(name, "save") || equal(name, "*");
    append |= equal_in_any_case(name, "appendonly") || equal(name, "*");
  }
  put_array(c.out, (save ? 2 : 0) + (append ? 2 : 0));
  if (save) {
    put_bulk(c.out, "save");
    put_bulk(c.out, "");
  }
  if (append) {
    put_bulk(c.out, "appendonly");
    put_bulk(c.out, "no");
  }
  return verdict::done;
}

CW_FN inline void put_command_facts(writer& out, text name) noexcept {
  const command_facts f = facts_of(word_of(name));
  put_array(out, 6);
  put_bulk(out, name);
  put_integer(out, f.words);
  put_array(out, 1);
  put_status(out, f.writes ? text("write") : text("readonly"));
  put_integer(out, f.first_key);
  put_integer(out, f.last_key);
  put_integer(out, f.step);
}

CW_COLD CW_FN inline verdict resp_command(resp_call& c) noexcept {
  if (c.args.count > 1) {
    if (equal_in_any_case(c.arg(1), "COUNT")) {
      put_integer(c.out, command_count);
    } else if (equal_in_any_case(c.arg(1), "DOCS")) {
      put_array(c.out, 0);  // there are none
    } else {
      return resp_unknown_subcommand(c, "COMMAND");
    }
    return verdict::done;
  }
  put_array(c.out, command_count);
  const text names = command_names();
  for (std::size_t begin = 0, i = 0; i < names.size; ++i) {
    if (names[i] != ' ') continue;
    put_command_facts(c.out, {names.data + begin, i - begin});
    begin = i + 1;
  }
  return verdict::done;
}

CW_COLD CW_FN inline verdict resp_unknown(resp_call& c) noexcept {
  c.out.put("-ERR unknown command '");
  put_shown(c.out, c.arg(0).first(128));
  c.out.put("', with args beginning with: ");
  std::size_t shown = 0;
  for (argument_cursor a(c.args, 1); a.more() && shown < 128;) {
    c.out.put('\'');
    shown += put_shown(c.out, a.next().first(128 - shown)) + 3;
    c.out.put("' ");
  }
  c.out.put("\r\n");
  return verdict::done;
}

/// Carries out a request of one or more arguments.
CW_COLD CW_FN inline verdict resp_carry_out(resp_call& c) noexcept {
  const std::uint64_t command = word_of(c.arg(0));
  const command_facts f = facts_of(command);
  if (f.words == 0) return resp_unknown(c);
  const auto words = static_cast<std::int64_t>(c.args.count);
  if (f.words > 0 ? words != f.words : words < -f.words) {
    put_arity_error(c.out, c.arg(0));
    return verdict::done;
  }
  c.writes = f.writes;
  switch (command) {
    case word_of("ping"):
      return resp_ping(c);
    case word_of("echo"):
      put_bulk(c.out, c.arg(1));
      return verdict::done;
    case word_of("set"):
      return resp_set(c);
    case word_of("get"):
      return resp_get(c);
    case word_of("del"):
      return resp_count(c, true);
    case word_of("exists"):
      return resp_count(c, false);
    case word_of("incr"):
      return resp_add(c, 1);
    case word_of("decr"):
      return resp_add(c, -1);
    case word_of("mset"):
      return resp_mset(c);
    case word_of("mget"):
      return resp_mget(c);
    case word_of("lpush"):
      return resp_push(c, side::front);
    case word_of("rpush"):
      return resp_push(c, side::back);
    case word_of("lpop"):
      return resp_pop(c, side::front);
    case word_of("rpop"):
      return resp_pop(c, side::back);
    case word_of("lrange"):
      return resp_lrange(c);
    case word_of("llen"):
      return resp_size<list>(c, kind::list);
    case word_of("sadd"):
      return resp_sadd(c);
    case word_of("spop"):
      return resp_spop(c);
    case word_of("scard"):
      return resp_size<dict>(c, kind::set);
    case word_of("hset"):
      return resp_hset(c);
    case word_of("hget"):
      return resp_hget(c);
    case word_of("zadd"):
      return resp_zadd(c);
    case word_of("zpopmin"):
      return resp_zpopmin(c);
    case word_of("dbsize"):
      put_integer(c.out, static_cast<std::int64_t>(c.keys.size()));
      return verdict::done;
    case word_of("flushall"):
      return resp_flushall(c);
    case word_of("config"):
      return resp_config(c);
    case word_of("command"):
      return resp_command(c);
    default:
      put_status(c.out, "OK");
      return verdict::quit;
  }
}

}  // namespace servers
