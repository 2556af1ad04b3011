// The scope checker's voice.
#pragma once

namespace crosswarp::exec::cpu {

/// Called with a sentence when a scope is too narrow.
using scope_report = void (*)(const char* what);
/// Replaces the default, which prints the sentence and aborts: a breach is a defect of the kernel,
/// and only checked builds look for it. Null restores it.
void on_scope_breach(scope_report f) noexcept;

}  // namespace crosswarp::exec::cpu
