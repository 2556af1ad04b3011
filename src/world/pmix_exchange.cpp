#include "pmix_exchange.hpp"

#include "crosswarp/error.hpp"
#include "crosswarp/options.hpp"

#if CROSSWARP_HAVE_PMIX
#include <pmix.h>

#include <cstring>
#include <future>
#include <memory>
#endif

namespace crosswarp::world_impl {

bool pmix_exchange::offered() {
  return options::read("PMIX_NAMESPACE").has_value();
}

#if CROSSWARP_HAVE_PMIX

namespace {

void check(pmix_status_t code, const std::string& call) {
  if (code != PMIX_SUCCESS) throw error(errc::system, call, PMIx_Error_string(code));
}

// The job's own process, as this process's connection knows it.
pmix_proc_t& myself() {
  static pmix_proc_t p;
  return p;
}

pmix_proc_t in_job(pmix_rank_t rank) {
  pmix_proc_t p;
  PMIX_LOAD_PROCID(&p, myself().nspace, rank);
  return p;
}

int job_number(const char* key, int fallback) {
  const pmix_proc_t job = in_job(PMIX_RANK_WILDCARD);
  pmix_value_t* value = nullptr;
  if (PMIx_Get(&job, key, nullptr, 0, &value) != PMIX_SUCCESS) return fallback;
  const auto number = static_cast<int>(value->data.uint32);
  PMIX_VALUE_RELEASE(value);
  return number;
}

}  // namespace

namespace {

/// One connection for the life of the process: an MPI that is started later, by the program or by
/// an engine, finds nothing of its job any more once a client has left.
class connection {
 public:
  static void open() { static const connection c; }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

 private:
  connection() { check(PMIx_Init(&myself(), nullptr, 0), "PMIx_Init"); }
  ~connection() { PMIx_Finalize(nullptr, 0); }
};

}  // namespace

void pmix_exchange::leave() noexcept {
  // An MPI of the program counts too; not for ever, should somebody begin anew meanwhile.
  for (int i = 0; i < 8 && PMIx_Initialized() != 0; ++i) PMIx_Finalize(nullptr, 0);
}

pmix_exchange::pmix_exchange() {
  connection::open();
  rank_ = static_cast<int>(myself().rank);
  size_ = job_number(PMIX_JOB_SIZE, 1);
  local_size_ = job_number(PMIX_LOCAL_SIZE, size_);
}

namespace {

void fence(nanoseconds timeout) {
  const pmix_proc_t job = in_job(PMIX_RANK_WILDCARD);
  pmix_info_t collect;
  const bool yes = true;
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  // Not every server keeps a deadline of its own, so the waiting is done here. The state outlives
  // this call: a fence that is given up may still end later.
  const auto ended = std::make_shared<std::promise<pmix_status_t>>();
  auto* const token = new std::shared_ptr<std::promise<pmix_status_t>>(ended);
  const pmix_status_t begun = PMIx_Fence_nb(
      &job, 1, &collect, 1,
      [](pmix_status_t code, void* data) {
        const std::unique_ptr<std::shared_ptr<std::promise<pmix_status_t>>> mine(
            static_cast<std::shared_ptr<std::promise<pmix_status_t>>*>(data));
        (*mine)->set_value(code);
      },
      token);
  PMIX_INFO_DESTRUCT(&collect);
  if (begun != PMIX_SUCCESS) {
    delete token;
    check(begun, "PMIx_Fence");
  }
  auto result = ended->get_future();
  if (result.wait_for(timeout) != std::future_status::ready) {
    throw error(errc::timeout, "world", "not all ranks of the job have come to make one");
  }
  check(result.get(), "PMIx_Fence");
}

}  // namespace

void pmix_exchange::publish(const std::string& key, const std::string& value, nanoseconds timeout) {
  pmix_value_t v;
  PMIX_VALUE_LOAD(&v, value.c_str(), PMIX_STRING);
  const pmix_status_t code = PMIx_Put(PMIX_GLOBAL, key.c_str(), &v);
  PMIX_VALUE_DESTRUCT(&v);
  check(code, "PMIx_Put");
  check(PMIx_Commit(), "PMIx_Commit");
  fence(timeout);
}

std::string pmix_exchange::receive(const std::string& key, nanoseconds timeout) {
  fence(timeout);
  const pmix_proc_t root = in_job(0);
  pmix_value_t* value = nullptr;
  check(PMIx_Get(&root, key.c_str(), nullptr, 0, &value), "PMIx_Get");
  std::string text = value->data.string;
  PMIX_VALUE_RELEASE(value);
  return text;
}

#else

namespace {
[[noreturn]] void absent() {
  throw error(errc::not_supported, "world",
              "started by mpirun or srun, but this build has no PMIx (libpmix-dev); start the "
              "program with 'crosswarp run'");
}
}  // namespace

pmix_exchange::pmix_exchange() {
  absent();
}
void pmix_exchange::leave() noexcept {}
void pmix_exchange::publish(const std::string& /*key*/, const std::string& /*value*/,
                            nanoseconds /*timeout*/) {
  absent();
}
std::string pmix_exchange::receive(const std::string& /*key*/, nanoseconds /*timeout*/) {
  absent();
}

#endif

}  // namespace crosswarp::world_impl
