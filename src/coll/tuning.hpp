// From which size on which algorithm is taken: the machine's table, or the defaults.
//
// A table is a text file, which `crosswarp tune` writes and people can read:
//
//   crosswarp tuning 1
//   device NVIDIA H200
//   ranks 8  push 16384  pull 65536  block 8192  long_block 32768
//
// Lines of `ranks` belong to the device above them. Sizes may be written as 64K; # begins a
// comment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crosswarp/coll.hpp"

namespace crosswarp::coll_impl {

/// A line of a table.
struct tuned {
  std::string device;  ///< its description, as `crosswarp info` has it
  int ranks = 0;
  coll_tuning values;
};
using tuning_table = std::vector<tuned>;

/// Throws error(invalid_argument) that names `file`, the line and what is wrong with it.
tuning_table parse_tuning(std::string_view text, const std::string& file);
std::string print_tuning(const tuning_table& table);
/// The same of a file. Throws error(system) when it cannot be read.
tuning_table read_tuning(const std::string& file);
/// Null when there is none for them.
const tuned* find_tuning(const tuning_table& table, const std::string& device, int ranks);

/// Where a table is looked for, and written: CROSSWARP_TUNING, else among this user's settings.
/// None when CROSSWARP_TUNING is `none`, or nobody knows where the settings are.
std::optional<std::string> tuning_file();
/// The same, if it is to be read: one that CROSSWARP_TUNING names has to be there.
std::optional<std::string> tuning_file_to_read();

/// As `crosswarp info` has it.
std::string description_of(device_ref device);
/// What holds where nothing was measured: an H200's, or a CPU's.
coll_tuning default_tuning(device_kind kind, int ranks);

struct chosen_tuning {
  coll_tuning values;
  std::string source;  ///< a file's name, "the defaults", ...
  int room = 1;        ///< blocks for which all ranks have room; GPUs may be of several kinds
};
/// Rank 0's, for all: they have to choose alike, and may be on machines with other files.
/// Collective. Throws error on all ranks: what is wrong with rank 0's, or error(asymmetric) when
/// options differ.
chosen_tuning agree_on_tuning(world& w, const coll_options& options);

}  // namespace crosswarp::coll_impl
