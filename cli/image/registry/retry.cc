#include "image/registry/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>

#include "http/http.h"
#include "image/registry/registry_error.h"

namespace adaptdl::image {
namespace {

void pause(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, time, [] { return false; });
  if (stop.stop_requested()) throw http::Stopped();
}

double random_share() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.5, 1)(generator);
}

}  // namespace

void Retrier::wait() {
  std::optional<std::chrono::seconds> asked;
  try {
    throw;
  } catch (const http::ConnectionError&) {
  } catch (const RegistryError& error) {
    asked = error.retry_after();
    if (!error.may_pass() || (asked && *asked > rule_.max_requested)) throw;
  }
  if (++failed_ >= rule_.tries) throw;
  const double growth = static_cast<double>(1 << std::min(failed_ - 1, 20)) * random_share();
  auto time =
      std::min(rule_.max_pause, std::chrono::duration_cast<std::chrono::milliseconds>(rule_.first_pause * growth));
  if (asked) time = std::max<std::chrono::milliseconds>(time, *asked);
  pause(time, stop_);
}

}  // namespace adaptdl::image
