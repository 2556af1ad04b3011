// Teams and contexts.
#include "crosswarp/error.hpp"
#include "runtime.hpp"

using namespace crosswarp;
using namespace crosswarp::shmem_c;

namespace {

/// Takes a new team in; SHMEM_TEAM_INVALID for none.
shmem_team_t keep(runtime& r, std::optional<shmem::team> made, const shmem_team_config_t* config,
                  long mask) {
  if (!made) return SHMEM_TEAM_INVALID;
  auto t = std::make_unique<shmem_team_object>();
  t->own.emplace(std::move(*made));
  t->team = &*t->own;
  t->view = t->team->device();
  if (config != nullptr && (mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) t->config = *config;
  shmem_team_object* const handle = t.get();
  const std::scoped_lock lock(r.mutex);
  r.teams.emplace(handle, std::move(t));
  return handle;
}

/// What makes a team, as OpenSHMEM reports it: a team that cannot be is no reason to end the job.
template <class F>
int made(const char* name, F make) {
  try {
    make();
    return 0;
  } catch (const error& e) {
    if (e.code() != errc::invalid_argument && e.code() != errc::out_of_memory) {
      give_up(name, e.what());
    }
    return -1;
  }
}

int make_context(const char* name, shmem_team_t team, shmem_ctx_t* ctx) {
  *ctx = SHMEM_CTX_INVALID;
  const shmem_team_object* const t = team_of(team, name);
  if (t == nullptr) return -1;
  runtime& r = *job;
  const std::scoped_lock lock(r.mutex);
  auto made = std::make_unique<shmem_ctx_object>(shmem_ctx_object{t->team->make_context(), team});
  *ctx = made.get();
  r.contexts.emplace(*ctx, std::move(made));
  return 0;
}

}  // namespace

CW_SHMEM(int, team_my_pe, shmem_team_t team) {
  const shmem_team_object* const t = team_of(team, "shmem_team_my_pe");
  return t == nullptr ? -1 : t->view.my_pe();
}
CW_SHMEM(int, team_n_pes, shmem_team_t team) {
  const shmem_team_object* const t = team_of(team, "shmem_team_n_pes");
  return t == nullptr ? -1 : t->view.n_pes();
}
CW_SHMEM(int, team_get_config, shmem_team_t team, long config_mask, shmem_team_config_t* config) {
  const shmem_team_object* const t = team_of(team, "shmem_team_get_config");
  if (t == nullptr) return -1;
  if (config != nullptr && (config_mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) *config = t->config;
  return 0;
}
CW_SHMEM(int, team_translate_pe, shmem_team_t src_team, int src_pe, shmem_team_t dest_team) {
  const shmem_team_object* const from = team_of(src_team, "shmem_team_translate_pe");
  const shmem_team_object* const to = team_of(dest_team, "shmem_team_translate_pe");
  if (from == nullptr || to == nullptr) return -1;
  return from->view.team().translate(src_pe, to->view.team());
}

CW_SHMEM(int, team_split_strided, shmem_team_t parent_team, int start, int stride, int size,
         const shmem_team_config_t* config, long config_mask, shmem_team_t* new_team) {
  *new_team = SHMEM_TEAM_INVALID;
  const shmem_team_object* const parent = team_of(parent_team, "shmem_team_split_strided");
  if (parent == nullptr) return -1;
  return made("shmem_team_split_strided", [&] {
    runtime& r = *job;
    *new_team =
        keep(r, r.shmem.split_strided(*parent->team, start, stride, size), config, config_mask);
  });
}

CW_SHMEM(int, team_split_2d, shmem_team_t parent_team, int xrange,
         const shmem_team_config_t* xaxis_config, long xaxis_mask, shmem_team_t* xaxis_team,
         const shmem_team_config_t* yaxis_config, long yaxis_mask, shmem_team_t* yaxis_team) {
  *xaxis_team = *yaxis_team = SHMEM_TEAM_INVALID;
  const shmem_team_object* const parent = team_of(parent_team, "shmem_team_split_2d");
  if (parent == nullptr) return -1;
  return made("shmem_team_split_2d", [&] {
    runtime& r = *job;
    shmem::axes made = r.shmem.split_2d(*parent->team, xrange);
    *xaxis_team = keep(r, std::move(made.row), xaxis_config, xaxis_mask);
    *yaxis_team = keep(r, std::move(made.column), yaxis_config, yaxis_mask);
  });
}

CW_SHMEM(void, team_destroy, shmem_team_t team) {
  if (team == SHMEM_TEAM_INVALID) return;
  runtime& r = job_for("shmem_team_destroy");
  const std::scoped_lock lock(r.mutex);
  std::erase_if(r.contexts, [&](const auto& c) { return c.second->team == team; });
  if (r.teams.erase(team) == 0) give_up("shmem_team_destroy", "no such team");
}

CW_SHMEM(void*, team_ptr, shmem_team_t team, const void* dest, int pe) {
  const shmem_team_object* const t = team_of(team, "shmem_team_ptr");
  return t == nullptr ? nullptr : t->view.ptr(static_cast<const std::byte*>(dest), pe);
}

// ---- contexts: options promise less than what all of them can do

CW_SHMEM(int, team_create_ctx, shmem_team_t team, long /*options*/, shmem_ctx_t* ctx) {
  return make_context("shmem_team_create_ctx", team, ctx);
}
CW_SHMEM(int, ctx_create, long /*options*/, shmem_ctx_t* ctx) {
  return make_context("shmem_ctx_create", SHMEM_TEAM_WORLD, ctx);
}
CW_SHMEM(void, ctx_destroy, shmem_ctx_t ctx) {
  if (ctx == SHMEM_CTX_INVALID) return;
  if (ctx == SHMEM_CTX_DEFAULT) give_up("shmem_ctx_destroy", "the default context stays");
  runtime& r = job_for("shmem_ctx_destroy");
  pshmem_ctx_quiet(ctx);
  const std::scoped_lock lock(r.mutex);
  r.contexts.erase(ctx);
}
CW_SHMEM(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t* team) {
  *team = SHMEM_TEAM_INVALID;
  if (ctx == SHMEM_CTX_INVALID) return -1;
  *team = ctx == SHMEM_CTX_DEFAULT ? SHMEM_TEAM_WORLD : ctx->team;
  return 0;
}
