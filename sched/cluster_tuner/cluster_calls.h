// Retries calls to the cluster's API server until they are answered, because a search can take days, during which the
// cluster may be unreachable at times.
//
// Threading: any thread may call the functions. The client must outlive this object.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "kube/api/client.h"

namespace adaptdl::sched::tune {

class ClusterCalls {
 public:
  using Notice = std::function<void(const std::string& text)>;  // called by any thread

  ClusterCalls(kube::Client& client, Notice notice) : client_(client), notice_(std::move(notice)) {}

  kube::Client& client() const noexcept { return client_; }

  // Retries `work` until it succeeds, and returns its result. Throws http::Stopped when a stop is requested. If no
  // retry can succeed, rethrows the exception from `work`: some ApiErrors, and any exception that is not an Error. A
  // refusal, or a 404 that names no object, is an error only if it persists, because a starting server may respond in
  // this way before it has loaded its rules and resources.
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

  // Records that a call failed. Sends a notice if no earlier call has failed since the last successful one.
  void unreachable(const std::string& why);
  // Records that a call succeeded. Sends a notice if the calls before it failed.
  void answered();

 private:
  struct Attempt {
    std::chrono::steady_clock::time_point began;                   // when the last attempt began
    std::chrono::milliseconds pause{100};                          // before the next attempt
    std::optional<std::chrono::steady_clock::time_point> refused;  // when the server began to refuse
  };

  bool may_pass(Attempt& attempt, const std::exception& error);
  static void pause(Attempt& attempt, const std::stop_token& stop);

  kube::Client& client_;
  const Notice notice_;
  std::mutex mutex_;
  bool unreachable_ = false;
};

}  // namespace adaptdl::sched::tune
