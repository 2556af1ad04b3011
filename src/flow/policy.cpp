// Policies that need to know nothing of the machine.
#include <numeric>

#include "crosswarp/flow_policy.hpp"

namespace crosswarp::flow {
namespace {

using targets = std::function<std::vector<int>(int source, const fan& f)>;

/// Each input goes where it always goes.
policy fixed(std::string name, spread how, const targets& to, std::string why,
             std::size_t unit = 1) {
  return {std::move(name),
          [how, to, unit](const segment&, int source, const fan& f) {
            return route{how, to(source, f), unit};
          },
          to, std::move(why)};
}

std::vector<int> all_outputs(int /*source*/, const fan& f) {
  std::vector<int> all(static_cast<std::size_t>(f.outputs));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Input `i` to output next(i); input 0 to the one output that is no input's, if there is one.
targets towards_zero(int (*next)(int)) {
  return [next](int i, const fan& f) -> std::vector<int> {
    if (i > 0) return {next(i)};
    if (f.outputs > f.inputs) return {f.outputs - 1};
    return {};
  };
}

}  // namespace

policy any_available() {
  return fixed("any available", spread::any, all_outputs,
               "each packet goes to an output that has a buffer free, so the fast get more");
}

policy priority() {
  return fixed("priority", spread::priority, all_outputs,
               "each packet goes to the first output that has a buffer free");
}

policy broadcast() {
  return fixed("broadcast", spread::every, all_outputs, "all of it goes to every output");
}

policy scatter(std::size_t unit) {
  return fixed("scatter", spread::split, all_outputs,
               "every output gets an equal part, in units of " + std::to_string(unit) + " bytes",
               unit);
}

policy gather() {
  return fixed(
      "gather", spread::any, [](int, const fan&) { return std::vector{0}; },
      "everything goes to output 0");
}

policy ring() {
  return fixed(
      "ring", spread::any, [](int i, const fan& f) { return std::vector{(i + 1) % f.outputs}; },
      "each input goes to the next output, the last to the first");
}

policy one_way_reduction() {
  return fixed("one-way reduction", spread::any, towards_zero([](int i) { return i - 1; }),
               "each adds its own and hands it down, from the last to the first");
}

policy tree_reduction() {
  return fixed("tree reduction", spread::any, towards_zero([](int i) { return i & (i - 1); }),
               "along a binomial tree, in as many steps as the number of inputs has bits");
}

policy user_defined(std::function<std::vector<int>(const segment&, int, const std::vector<int>&)> f,
                    spread how) {
  return {"user-defined",
          [f = std::move(f), how](const segment& s, int source, const fan& ends) {
            return route{how, f(s, source, all_outputs(source, ends)), 1};
          },
          all_outputs, "a function of the user's chooses for each segment"};
}

}  // namespace crosswarp::flow
