// The sanitizer that the tests are compiled with, as reported by GCC or Clang.
#pragma once

namespace sanitizer {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddress = true;
#elif defined __has_feature
inline constexpr bool kAddress = __has_feature(address_sanitizer);
#else
inline constexpr bool kAddress = false;
#endif

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThread = true;
#elif defined __has_feature
inline constexpr bool kThread = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThread = false;
#endif

}  // namespace sanitizer
