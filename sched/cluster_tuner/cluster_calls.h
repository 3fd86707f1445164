// Calls to the API server of a search's cluster, which are repeated until they are answered: a search takes days, and a
// cluster may be unreachable for a part of them.
//
// Threading: any thread. The client must outlive it.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "kube/client.h"

namespace adaptdl::sched::tune {

class ClusterCalls {
 public:
  using Notice = std::function<void(const std::string& text)>;  // called by any thread

  ClusterCalls(kube::Client& client, Notice notice) : client_(client), notice_(std::move(notice)) {}

  kube::Client& client() const noexcept { return client_; }

  // Returns what `work` returns, after as many tries as it takes. Throws http::Stopped at a stop, and what `work`
  // throws if no later try can succeed: an ApiError, or anything but an Error. A refusal, and a 404 that names no
  // object, are errors if they last: a server that starts may answer so before it knows its own rules and resources.
  template <typename Work>
  auto persist(const std::stop_token& stop, const Work& work) {
    for (Attempt attempt;;) {
      attempt.began = std::chrono::steady_clock::now();
      try {
        if constexpr (std::is_void_v<decltype(work())>) {
          work();
          return answered();
        } else {
          auto result = work();
          answered();
          return result;
        }
      } catch (const std::exception& error) {
        if (!may_pass(attempt, error)) throw;
      }
      pause(attempt, stop);
    }
  }

  // Reports once that the cluster is unreachable, and once that it is reachable again.
  void unreachable(const std::string& why);
  void answered();

 private:
  struct Attempt {
    std::chrono::steady_clock::time_point began;                   // the last try
    std::chrono::milliseconds pause{100};                          // before the next one
    std::optional<std::chrono::steady_clock::time_point> refused;  // since when
  };

  bool may_pass(Attempt& attempt, const std::exception& error);
  static void pause(Attempt& attempt, const std::stop_token& stop);

  kube::Client& client_;
  const Notice notice_;
  std::mutex mutex_;
  bool unreachable_ = false;
};

}  // namespace adaptdl::sched::tune
