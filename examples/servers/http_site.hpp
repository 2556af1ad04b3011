// The host's half of the HTTP server: pages in memory of a device.
#pragma once

#include <string>
#include <vector>

#include "crosswarp/buffer.hpp"
#include "http.hpp"

namespace servers {

struct http_content {
  std::string path;
  std::string type;
  std::string body;
};

/// Owns pages; they live as long as it does.
class http_site {
 public:
  /// `type`: at most 100 bytes, or a head might not fit where one does.
  http_site(crosswarp::device_ref d, const std::vector<http_content>& pages)
      : bytes_(d, std::span<const char>(all_bytes(pages))), pages_(d, pages.size() + 1) {
    std::vector<http_page> table;
    const char* at = bytes_.data();
    const auto take = [&](const std::string& s) {
      const char* const here = at;
      at += s.size();
      return here;
    };
    for (const http_content& p : pages) {
      if (p.type.size() > 100) {
        throw crosswarp::error(crosswarp::errc::invalid_argument, "http_site",
                               "the type of " + p.path + " has more than 100 bytes");
      }
      const char* const path = take(p.path);
      const char* const type = take(p.type);
      const char* const body = take(p.body);
      table.push_back({path, type, body, static_cast<std::uint32_t>(p.path.size()),
                       static_cast<std::uint32_t>(p.type.size()), p.body.size()});
    }
    pages_.write(table);
    count_ = static_cast<std::uint32_t>(table.size());
  }

  [[nodiscard]] http engine(const http_options& o = {}) const { return {pages_.data(), count_, o}; }

 private:
  static std::string all_bytes(const std::vector<http_content>& pages) {
    std::string all;
    for (const http_content& p : pages) all += p.path + p.type + p.body;
    return all.empty() ? " " : all;
  }
  crosswarp::buffer<char> bytes_;
  crosswarp::buffer<http_page> pages_;
  std::uint32_t count_ = 0;
};

}  // namespace servers
