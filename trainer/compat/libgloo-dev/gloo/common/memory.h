// Stand-in for a header that Debian's libgloo-dev leaves out although the headers of its TCP transport include it.
// Their classes need only that these are as in the original: a shared_ptr or a weak_ptr each.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> ptr_;
};

template <typename T>
class ShareableNonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
