// MPI in this process: started once, ended once, entered by one thread at a time.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

namespace crosswarp::mpi {

inline std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

inline void check(int code, const char* call, const char* advice = "") {
  if (code != MPI_SUCCESS) throw error(errc::system, call, text_of(code) + advice);
}

[[noreturn]] inline void refuse(const std::string& why) {
  throw error(errc::not_supported, "engine mpi", why);
}

/// Some MPI launcher started this process, and no other: MPI_Init would make a job of one.
inline bool started_by_mpi() {
  if (options::read("CROSSWARP_BOOTSTRAP")) return false;
  constexpr const char* theirs[] = {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_FD",
                                    "PMI_PORT"};
  return std::any_of(std::begin(theirs), std::end(theirs),
                     [](const char* variable) { return options::read(variable).has_value(); });
}

/// MPI, which a process can start once and end once.
class library {
 public:
  /// Starts MPI unless the program has. Never destroyed: see end().
  static library& start(int ranks) {
    static std::mutex one_at_a_time;
    static library* only = nullptr;
    const std::scoped_lock lock(one_at_a_time);
    if (only == nullptr) only = new library(ranks);
    return *only;
  }

  /// To be held while inside MPI, where only one thread may be.
  [[nodiscard]] std::unique_lock<std::mutex> enter() {
    return level_ == MPI_THREAD_MULTIPLE ? std::unique_lock<std::mutex>()
                                         : std::unique_lock<std::mutex>(inside_);
  }

  /// Held by rank 0 of a world during a call that waits for all ranks; see together().
  std::timed_mutex order;
  std::atomic<int> engines{0};
  /// MPI was left with something that never ends: MPI_Finalize would wait for it.
  std::atomic<bool> stuck{false};
  std::atomic<std::uint32_t> worlds{0};

 private:
  explicit library(int ranks) : process_(getpid()) {
    int there = 0;
    int gone = 0;
    MPI_Initialized(&there);
    MPI_Finalized(&gone);
    if (gone != 0) refuse("MPI_Finalize has been called");
    if (there != 0) {
      join();
    } else {
      init(ranks);
    }
  }

  /// The program has started MPI, and will end it. When it asked for MPI_THREAD_SERIALIZED, it must
  /// not call MPI while a world lives.
  void join() {
    check(MPI_Query_thread(&level_), "MPI_Query_thread");
    if (level_ < MPI_THREAD_SERIALIZED) {
      refuse(
          "MPI was started for one thread; use MPI_Init_thread with MPI_THREAD_MULTIPLE, or "
          "leave it to Crosswarp");
    }
  }

  void init(int ranks) {
    if (ranks > 1 && !started_by_mpi()) {
      refuse("these ranks are no MPI job; start the program with mpirun");
    }
    // Not more: Open MPI's windows by messages refuse MPI_THREAD_MULTIPLE.
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level_), "MPI_Init_thread");
    if (level_ < MPI_THREAD_SERIALIZED) {
      MPI_Finalize();
      refuse("this MPI is for programs of one thread");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    on_exit([](int code, void* self) { static_cast<library*>(self)->end(code); }, this);
  }

  /// A good end waits for the other ranks' good ends. After a bad one nobody comes, and what the
  /// launcher does about a process that ends without MPI_Finalize is what is wanted: it ends all.
  void end(int code) const {
    int gone = 0;
    MPI_Finalized(&gone);
    if (gone != 0 || code != 0 || stuck || engines != 0 || getpid() != process_) return;
    MPI_Finalize();
  }

  pid_t process_;
  int level_ = MPI_THREAD_SINGLE;
  std::mutex inside_;
};

}  // namespace crosswarp::mpi
