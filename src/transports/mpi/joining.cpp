// The engine of MPI: how ranks join and leave, and how their memory becomes known to MPI.
#include <cstring>

#include "engine_mpi.hpp"

namespace crosswarp::mpi {

engine_mpi::engine_mpi(const engine_setup& s)
    : setup_(s),
      mpi_(library::start(s.size)),
      words_(std::make_unique<lent_to_mpi>()),
      peers_(static_cast<std::size_t>(s.size)) {
  join();
  ++mpi_.engines;
}

engine_mpi::~engine_mpi() {
  ending_ = true;
  for (region& r : regions_) free_window(r.window);
  send_last_answers();
  if (broken_ || !requests_.empty()) {
    // MPI may still read and write them. Reachable for as long as the process lives.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): nothing is left to be done without it
    static auto* const left = new std::vector<std::unique_ptr<lent_to_mpi>>;
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    left->push_back(std::move(words_));
    mpi_.stuck = true;
  } else {
    const auto inside = mpi_.enter();
    MPI_Comm_free(&kernels_);
    MPI_Comm_free(&hosts_);
  }
  --mpi_.engines;
}

void engine_mpi::join() {
  card my{0, 0, mpi_.worlds++};
  {
    const auto inside = mpi_.enter();
    check(MPI_Comm_size(MPI_COMM_WORLD, &my.size), "MPI_Comm_size");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &my.rank), "MPI_Comm_rank");
  }
  const std::vector<card> all = exchange_cards(my);
  const std::vector<int> order = order_of(all);
  constexpr std::uint32_t tags = 32767;  // what every MPI has
  const int tag = static_cast<int>(all[0].world % tags);
  // As in together(), by means that are there before MPI's are.
  std::unique_lock<std::timed_mutex> mine(mpi_.order, std::defer_lock);
  if (setup_.rank == 0) mine.lock();
  setup_.meet({});
  {
    const auto inside = mpi_.enter();
    make_communicators(order, tag);
  }
  setup_.meet({});
}

std::vector<engine_mpi::card> engine_mpi::exchange_cards(const card& my) const {
  std::vector<std::byte> bytes(sizeof(card));
  std::memcpy(bytes.data(), &my, sizeof(my));
  const auto gathered = setup_.meet(std::move(bytes));
  std::vector<card> all;
  for (const auto& theirs : gathered) {
    card c{};
    std::memcpy(&c, theirs.data(), std::min(theirs.size(), sizeof(c)));
    all.push_back(c);
  }
  return all;
}

std::vector<int> engine_mpi::order_of(const std::vector<card>& all) {
  const int size = static_cast<int>(all.size());
  std::vector<int> order;
  std::vector<bool> seen(all.size());
  for (const card& c : all) {
    if (c.size != size) {
      refuse("the world has " + std::to_string(size) + " ranks and MPI has " +
             std::to_string(c.size) + "; start the program with mpirun");
    }
    const auto i = static_cast<std::size_t>(c.rank);
    if (i >= seen.size() || seen[i]) {
      refuse("several ranks are one process of MPI; start the program with mpirun");
    }
    seen[i] = true;
    order.push_back(c.rank);
  }
  return order;
}

void engine_mpi::make_communicators(const std::vector<int>& order, int tag) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group mine = MPI_GROUP_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, setup_.size, order.data(), &mine), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, mine, tag, &hosts_), "MPI_Comm_create_group");
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(hosts_, MPI_ERRORS_RETURN);
  check(MPI_Comm_dup(hosts_, &kernels_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(kernels_, MPI_ERRORS_RETURN);
}

bool engine_mpi::assemble() {
  if (broken_) return false;
  MPI_Request r = MPI_REQUEST_NULL;
  int done = 0;
  {
    const auto inside = mpi_.enter();
    broken_ = MPI_Ibarrier(hosts_, &r) != MPI_SUCCESS;
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!broken_) {
    {
      const auto inside = mpi_.enter();
      broken_ = MPI_Test(&r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
      serve();  // who is missing may wait for an answer
    }
    if (done != 0) return true;
    broken_ = broken_ || std::chrono::steady_clock::now() > end;
    std::this_thread::yield();
  }
  return false;
}

// ---- memory

std::vector<std::byte> engine_mpi::offer_region(std::uint16_t id, const region_info& mine) {
  if (!mine.on_host) {
    refuse(
        "a GPU's memory is out of MPI's reach; use a heap in the host's memory "
        "(CROSSWARP_HEAP_KIND=pinned)");
  }
  if (regions_.size() <= id) regions_.resize(id + std::size_t{1});
  regions_[id] = {mine.base, mine.bytes, MPI_WIN_NULL};
  return {};
}

/// Waits for the other ranks, inside MPI, where what they want of this rank goes on.
void engine_mpi::install_region(std::uint16_t id, std::vector<std::vector<std::byte>> /*offers*/) {
  region& r = regions_[id];
  int code = MPI_SUCCESS;
  const bool all = together([&] {
    code =
        MPI_Win_create(r.base, static_cast<MPI_Aint>(r.bytes), 1, MPI_INFO_NULL, hosts_, &r.window);
  });
  if (!all) throw error(errc::timeout, "MPI_Win_create", "not all ranks came");
  check(code, "MPI_Win_create",
        "; where MPI has no remote memory access between the ranks, 'mpirun --mca osc ^rdma' "
        "lets it use messages");
  const auto inside = mpi_.enter();
  MPI_Win_set_errhandler(r.window, MPI_ERRORS_RETURN);
  int* model = nullptr;
  int known = 0;
  MPI_Win_get_attr(r.window, MPI_WIN_MODEL, &model, &known);
  if (known == 0 || *model != MPI_WIN_UNIFIED) {
    refuse("this MPI keeps copies of windows, which kernels would not see change");
  }
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, r.window), "MPI_Win_lock_all");
}

void engine_mpi::remove_region(std::uint16_t id) noexcept {
  free_window(regions_[id].window);
  for (peer& p : peers_) std::erase(p.dirty, id);
}

void engine_mpi::free_window(MPI_Win& w) noexcept {
  if (w == MPI_WIN_NULL) return;
  together([&] {
    MPI_Win_unlock_all(w);
    if (!requests_.empty()) test_requests();  // ended by that
    MPI_Win_free(&w);
  });
  w = MPI_WIN_NULL;
  tell();
}

void engine_mpi::send_last_answers() {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!broken_ && !requests_.empty() && std::chrono::steady_clock::now() < end) {
    const auto inside = mpi_.enter();
    test_requests();
  }
}

}  // namespace crosswarp::mpi
