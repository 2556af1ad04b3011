// Environment variables that look like ours and are not: most likely typing errors, which would
// otherwise show in nothing.
#pragma once

#include <string>
#include <vector>

namespace crosswarp::options {

/// Set, named CROSSWARP_..., and read by nobody.
std::vector<std::string> unknown_variables();
/// The variable whose name is most like it; empty when none is.
std::string nearest_variable(const std::string& unknown);
/// A line for each unknown variable, which names the one that was meant where it can be guessed.
std::vector<std::string> complaints_about_variables();

/// Logs them, once in a process; not under `crosswarp run`, which has told them.
void log_unknown_variables(int rank);

}  // namespace crosswarp::options
