#include "coll/tuning.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "coll/shape.hpp"
#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::coll_impl {
namespace {

constexpr std::string_view first_line = "crosswarp tuning 1";
constexpr std::uintmax_t longest_file = 1U << 20U;
constexpr int most_ranks = 1U << 20U;
constexpr std::size_t least_block = 256;
constexpr std::size_t longest = std::size_t{1} << 40U;

struct field {
  const char* name;
  std::size_t coll_tuning::*value;
};
constexpr field fields[] = {{"push", &coll_tuning::push},
                            {"pull", &coll_tuning::pull},
                            {"block", &coll_tuning::block},
                            {"long_block", &coll_tuning::long_block}};

/// Why these cannot be; empty when they can.
std::string complaint_about(const coll_tuning& t) {
  for (const field& f : fields) {
    const std::size_t value = t.*f.value;
    const bool is_block = f.value == &coll_tuning::block || f.value == &coll_tuning::long_block;
    if (value > longest || (is_block && value < least_block)) {
      return std::string(f.name) + " is " + std::to_string(value) + "; " +
             (is_block ? std::to_string(least_block) : "0") + " to " + std::to_string(longest) +
             " bytes make sense";
    }
  }
  return "";
}

// ---- one line

/// Where complaints say that they come from.
struct place {
  const std::string& file;
  int line;
  [[noreturn]] void refuse(const std::string& why) const {
    throw error(errc::invalid_argument, file + ":" + std::to_string(line),
                why + "; mend it, or run crosswarp tune --replace");
  }
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  text = text.substr(0, text.find('#'));
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

int ranks_of(const std::string& word, const place& at) {
  int ranks = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, bad] = std::from_chars(word.data(), end, ranks);
  if (bad != std::errc{} || stop != end || ranks < 1 || ranks > most_ranks) {
    at.refuse("'" + word + "' is no number of ranks");
  }
  return ranks;
}

std::size_t bytes_of(const std::string& word, const std::string& name, const place& at) {
  try {
    return options::parse_bytes(word, name);
  } catch (const error& e) {
    at.refuse(e.what());
  }
}

/// `ranks 8  push 16384  pull 65536  block 8192  long_block 32768`, of any order behind the first.
tuned line_of(std::string_view text, const std::string& device, const place& at) {
  std::istringstream words{std::string(text)};
  std::string name;
  std::string value;
  words >> name >> value;
  tuned t{device, ranks_of(value, at), {}};
  std::vector<std::string> seen;
  while (words >> name) {
    const auto* const f = std::find_if(std::begin(fields), std::end(fields),
                                       [&](const field& each) { return name == each.name; });
    if (f == std::end(fields)) at.refuse("'" + name + "' is none of push, pull, block, long_block");
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      at.refuse(name + " is there twice");
    if (!(words >> value)) at.refuse(name + " has no number");
    t.values.*(f->value) = bytes_of(value, name, at);
    seen.push_back(name);
  }
  for (const field& f : fields) {
    if (std::find(seen.begin(), seen.end(), f.name) == seen.end()) {
      at.refuse(std::string(f.name) + " is missing");
    }
  }
  if (const std::string why = complaint_about(t.values); !why.empty()) at.refuse(why);
  return t;
}

// ---- what ranks tell each other

/// Of all ranks, so that one that asks for something else is found; rank 0's is what all take, and
/// a text follows it: where it comes from, or why there is none.
struct told {
  coll_tuning values;
  std::size_t shelf_bytes = 0;
  std::int32_t channels = 0;
  std::int32_t room = 1;
  coll_algorithm algorithm = coll_algorithm::automatic;
  bool failed = false;
};

std::vector<std::byte> packed(const told& what, const std::string& text) {
  std::vector<std::byte> all(sizeof(what) + text.size());
  std::memcpy(all.data(), &what, sizeof(what));
  if (!text.empty()) std::memcpy(all.data() + sizeof(what), text.data(), text.size());
  return all;
}

told unpacked(const std::vector<std::byte>& all, std::string& text) {
  told what;
  if (all.size() < sizeof(what)) throw error(errc::asymmetric, "coll", "another version's rank");
  std::memcpy(&what, all.data(), sizeof(what));
  text.assign(reinterpret_cast<const char*>(all.data()) + sizeof(what), all.size() - sizeof(what));
  return what;
}

chosen_tuning choose(const world& w, const coll_options& options) {
  if (options.tuning) {
    if (const std::string why = complaint_about(*options.tuning); !why.empty()) {
      throw error(errc::invalid_argument, "coll_options::tuning", why);
    }
    return {*options.tuning, "coll_options", 1};
  }
  const device_ref device = w.options().device;
  const coll_tuning defaults = default_tuning(device.kind(), w.size());
  const auto file = tuning_file_to_read();
  if (!file) return {defaults, "the defaults", 1};
  const tuning_table table = read_tuning(*file);
  const std::string description = description_of(device);
  const tuned* const found = find_tuning(table, description, w.size());
  if (found != nullptr) return {found->values, *file, 1};
  return {defaults,
          "the defaults, as " + *file + " has no " + std::to_string(w.size()) + " ranks of " +
              description,
          1};
}

void check_same(const told& first, const told& other, int rank) {
  std::string what;
  if (other.algorithm != first.algorithm) {
    what = std::string("algorithm ") + to_string(other.algorithm) + ", rank 0 for " +
           to_string(first.algorithm);
  } else if (other.channels != first.channels) {
    what =
        std::to_string(other.channels) + " channels, rank 0 for " + std::to_string(first.channels);
  } else if (other.shelf_bytes != first.shelf_bytes) {
    what = "shelves of " + std::to_string(other.shelf_bytes) + " bytes, rank 0 for " +
           std::to_string(first.shelf_bytes);
  } else {
    return;
  }
  throw error(errc::asymmetric, "coll",
              "it asks for " + what + "; all ranks pass the same coll_options", rank);
}

}  // namespace

tuning_table parse_tuning(std::string_view text, const std::string& file) {
  tuning_table table;
  std::string device;
  bool begun = false;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    const place at{file, ++number};
    if (line.empty()) continue;
    if (!begun) {
      if (line != first_line) at.refuse("this is no '" + std::string(first_line) + "'");
      begun = true;
    } else if (line.starts_with("device ")) {
      device = trimmed(line.substr(7));
    } else if (line.starts_with("ranks ")) {
      if (device.empty()) at.refuse("no device is named above it");
      table.push_back(line_of(line, device, at));
      const tuned& t = table.back();
      if (find_tuning(table, t.device, t.ranks) != &t) {
        at.refuse(std::to_string(t.ranks) + " ranks of " + t.device + " are there twice");
      }
    } else {
      at.refuse("'" + std::string(line.substr(0, line.find(' '))) +
                "' is neither device nor ranks");
    }
  }
  if (!begun) place{file, number}.refuse("there is nothing in it");
  return table;
}

std::string print_tuning(const tuning_table& table) {
  std::ostringstream out;
  out << first_line
      << "\n# Bytes up to which all_reduce pushes and pulls, and how many are worth a block.\n";
  std::vector<std::string> done;
  for (const tuned& first : table) {
    if (std::find(done.begin(), done.end(), first.device) != done.end()) continue;
    done.push_back(first.device);
    out << "\ndevice " << first.device << "\n";
    for (const tuned& t : table) {
      if (t.device != first.device) continue;
      out << "ranks " << t.ranks;
      for (const field& f : fields) out << "  " << f.name << " " << t.values.*f.value;
      out << "\n";
    }
  }
  return out.str();
}

tuning_table read_tuning(const std::string& file) {
  std::error_code bad;
  // Nothing else is opened: a pipe would be waited for.
  if (!std::filesystem::is_regular_file(file, bad)) {
    throw error(errc::system, file, bad ? bad.message() : "it is no file");
  }
  const std::uintmax_t size = std::filesystem::file_size(file, bad);
  if (bad || size > longest_file) {
    throw error(errc::invalid_argument, file,
                bad ? bad.message() : std::to_string(size) + " bytes are no table of tuning");
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw error::from_errno(errno, "coll", file);
  return parse_tuning(text, file);
}

const tuned* find_tuning(const tuning_table& table, const std::string& device, int ranks) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const tuned& t) {
    return t.device == device && t.ranks == ranks;
  });
  return found == table.end() ? nullptr : &*found;
}

std::optional<std::string> tuning_file() {
  if (auto named = options::read("CROSSWARP_TUNING")) {
    if (*named == "none") return std::nullopt;
    return named;
  }
  if (const auto settings = options::read("XDG_CONFIG_HOME")) {
    return *settings + "/crosswarp/tuning";
  }
  const auto home = options::read("HOME");
  if (!home) return std::nullopt;
  return *home + "/.config/crosswarp/tuning";
}

std::optional<std::string> tuning_file_to_read() {
  auto file = tuning_file();
  std::error_code ignored;
  if (!file || options::read("CROSSWARP_TUNING") || std::filesystem::exists(*file, ignored)) {
    return file;
  }
  return std::nullopt;
}

std::string description_of(device_ref device) {
  for (const device_info& info : devices()) {
    if (info.device == device) return info.description;
  }
  return device.name();
}

// Measured, see docs/measurements/coll.md.
coll_tuning default_tuning(device_kind kind, int ranks) {
  if (kind == device_kind::cpu) return {.push = 8, .pull = 4U << 10U};
  return {.push = longest,  // as far as there is room for packets
          .pull = (512U << 10U) / static_cast<std::size_t>(ranks),
          .block = 8U << 10U,
          .long_block = ranks == 2 ? 16U << 10U : 32U << 10U};
}

chosen_tuning agree_on_tuning(world& w, const coll_options& options) {
  told mine;
  mine.shelf_bytes = options.shelf_bytes;
  mine.channels = options.channels;
  mine.room = room_for_blocks(w);
  mine.algorithm = options.algorithm;
  std::string text;
  if (w.rank() == 0) {
    try {
      const chosen_tuning chosen = choose(w, options);
      mine.values = chosen.values;
      text = chosen.source;
    } catch (const error& e) {
      mine.failed = true;
      text = e.what();
    }
  }
  const auto all = w.allgather(packed(mine, text));
  const told first = unpacked(all.front(), text);
  if (first.failed) throw error(errc::invalid_argument, "tuning of collectives", text, 0);
  int room = first.room;
  for (int rank = 1; rank < w.size(); ++rank) {
    std::string nothing;
    const told other = unpacked(all[static_cast<std::size_t>(rank)], nothing);
    check_same(first, other, rank);
    room = std::min(room, other.room);
  }
  return {first.values, text, room};
}

}  // namespace crosswarp::coll_impl
