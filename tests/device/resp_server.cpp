#include "support/resp_server.hpp"

#include "crosswarp/launch.hpp"

namespace {

struct measure {
  CW_FN void operator()(const crosswarp::device::kernel_context&, const servers::table& t,
                        memory_use* use) const {
    *use = {t.blocks_in_use(), t.memory().chunks_in_use()};
  }
};

}  // namespace

server::server(std::size_t bytes, servers::table_options t, servers::resp_options o)
    : memory_(test_device(), bytes), engine_({memory_.data(), bytes, t}, o) {}

std::vector<serve::answer> server::ask_all(const std::vector<std::string>& inputs,
                                           const serve::way& w) const {
  return serve::ask<servers::resp_connection>(engine_, inputs, w);
}

memory_use server::use() const {
  crosswarp::stream s(test_device());
  crosswarp::buffer<memory_use> use(s.device(), 1);
  crosswarp::launch(s, {}, measure{}, engine_.keys(), use.data());
  s.sync();
  return use.read()[0];
}
