// How judges say what they think.
#pragma once

#include "judge.hpp"

namespace crosswarp::tool::doctor_impl {

inline finding ok(std::string area, std::string seen) {
  return {std::move(area), severity::ok, std::move(seen), ""};
}
inline finding skipped(std::string area, std::string seen) {
  return {std::move(area), severity::skipped, std::move(seen), ""};
}
inline finding hint(std::string area, std::string seen, std::string remedy) {
  return {std::move(area), severity::hint, std::move(seen), std::move(remedy)};
}
inline finding problem(std::string area, std::string seen, std::string remedy) {
  return {std::move(area), severity::problem, std::move(seen), std::move(remedy)};
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

}  // namespace crosswarp::tool::doctor_impl
