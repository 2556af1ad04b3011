// Which sanitizers watch this build. Their interfaces must be told when a stack is switched.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define CW_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CW_TSAN 1
#endif
#endif
#if !defined(CW_TSAN)
#define CW_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define CW_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CW_ASAN 1
#endif
#endif
#if !defined(CW_ASAN)
#define CW_ASAN 0
#endif

/// For functions in which ThreadSanitizer must look away: code that runs while a switch from one
/// fiber to another is half done.
#define CW_NO_TSAN __attribute__((noinline, no_sanitize("thread")))
