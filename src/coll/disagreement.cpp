#include "coll/disagreement.hpp"

#include "coll/kernels.hpp"

namespace crosswarp::coll_impl {
namespace {

constexpr const char* name_of(collective what) noexcept {
  constexpr const char* names[] = {"nothing",
                                   "barrier",
                                   "all_reduce",
                                   "reduce",
                                   "reduce_scatter",
                                   "reduce_scatter_v",
                                   "all_gather",
                                   "all_gather_v",
                                   "broadcast",
                                   "gather",
                                   "gather_v",
                                   "scatter",
                                   "scatter_v",
                                   "all_to_all",
                                   "all_to_all_v",
                                   "send",
                                   "receive",
                                   "all_reduce_rms_norm",
                                   "all_reduce_quantise to e4m3",
                                   "all_reduce_quantise to e5m2"};
  return names[static_cast<int>(what)];
}

bool is_uneven(collective what) noexcept {
  switch (what) {
    case collective::reduce_scatter_v:
    case collective::all_gather_v:
    case collective::gather_v:
    case collective::scatter_v:
    case collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

std::string amount_of(collective what, const description& d, data_type type) {
  const std::string count = std::to_string(d.count);
  switch (what) {
    case collective::none:
    case collective::barrier:
    case collective::all_to_all_v:
      return {};
    case collective::all_reduce:
    case collective::reduce:
    case collective::reduce_scatter:
      return " of " + count + " " + to_string(type);
    case collective::reduce_scatter_v:
      return " of " + count + " " + to_string(type) + " in all";
    case collective::all_gather_v:
    case collective::gather_v:
    case collective::scatter_v:
      return " of " + count + " bytes at most";
    case collective::rms_norm:
    case collective::quantise_e4m3:
    case collective::quantise_e5m2:
      return " of " + count + " rows of " + std::to_string(d.hidden) + " " + to_string(type);
    default:
      return " of " + count + " bytes";
  }
}

}  // namespace

std::string words_of(const description& d) {
  const auto what = static_cast<collective>(d.head & 0xffU);
  const auto type = static_cast<data_type>(d.head >> description::type_at & 0xffU);
  const auto op = static_cast<coll_op>(d.head >> description::op_at & 0xffU);
  const auto how = static_cast<coll_algorithm>(d.head >> description::how_at & 0x7fU);
  const auto root = static_cast<std::int32_t>(d.head >> description::root_at);
  std::string text = name_of(what) + amount_of(what, d, type);
  switch (what) {
    case collective::all_reduce:
    case collective::reduce:
    case collective::reduce_scatter:
    case collective::reduce_scatter_v:
      text += std::string(", ") + to_string(op);
      break;
    default:
      break;
  }
  switch (what) {
    case collective::reduce:
    case collective::gather:
    case collective::gather_v:
      text += ", to rank " + std::to_string(root);
      break;
    case collective::broadcast:
    case collective::scatter:
    case collective::scatter_v:
      text += ", from rank " + std::to_string(root);
      break;
    default:
      break;
  }
  if ((d.head >> description::shared_at & 1U) != 0) {
    text += ", in place, out at " + std::to_string(d.out) + " and in at " + std::to_string(d.in) +
            " of symmetric or registered memory";
  } else if (how != coll_algorithm::automatic) {
    text += std::string(", by ") + to_string(how);
  }
  return text;
}

std::string explain(const outcome& o, int who) {
  if (o.mine.head == 0) {
    const std::string differ =
        " with other counts, lengths of messages, types, operations, roots or places in symmetric "
        "or registered memory";
    if (who >= 0) return "it made another call than this rank, or" + differ;
    return "ranks made different calls, or" + differ +
           "; or calls of one rank on several streams were under way at once";
  }
  const std::string mine = words_of(o.mine);
  if (o.theirs.head == 0) return "it made another call than this rank's " + mine;
  const std::string theirs = words_of(o.theirs);
  if (mine != theirs) return "it called " + theirs + "; this rank " + mine;
  return "it called " + theirs + ", as this rank did, but not with the same " +
         (is_uneven(static_cast<collective>(o.mine.head & 0xffU)) ? "counts of parts"
                                                                  : "registered memory or blocks");
}

}  // namespace crosswarp::coll_impl
