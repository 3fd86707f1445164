#include "metrics/background.h"

#include <fmt/core.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "adaptdl/log.h"
#include "base/signals_blocked.h"
#include "protocol/hints_request.h"

namespace adaptdl::metrics {
namespace {

constexpr std::chrono::milliseconds kGivingUp{200};

std::optional<goodput::PerfParams> fit(const std::vector<goodput::Observation>& observations) {
  try {
    return goodput::fit_perf_params(observations);
  } catch (const std::exception& error) {
    log::warn(fmt::format("the goodput model was not updated: {}", error.what()));
    return {};
  }
}

}  // namespace

Background& Background::instance() {
  static auto* const background = new Background();
  return *background;
}

void Background::start() {
  if (started_) return;
  // The program's signals must be delivered to its own threads.
  {
    const SignalsBlocked blocked;
    std::thread([this] { run(); }).detach();
  }
  std::atexit([] { instance().stop(); });
  started_ = true;
}

void Background::begin_fit(std::vector<goodput::Observation> observations) {
  const std::lock_guard lock(mutex_);
  start();
  observations_ = std::move(observations);
  fit_ = Fit::kQueued;
  changed_.notify_all();
}

bool Background::fit_pending() {
  const std::lock_guard lock(mutex_);
  return fit_ != Fit::kNone;
}

std::optional<goodput::PerfParams> Background::finish_fit() {
  std::unique_lock lock(mutex_);
  if (fit_ == Fit::kQueued) {
    fit_ = Fit::kNone;
    const auto observations = std::move(observations_);
    lock.unlock();
    return fit(observations);
  }
  changed_.wait(lock, [this] { return fit_ != Fit::kRunning; });
  fit_ = Fit::kNone;
  return std::exchange(fitted_, {});
}

void Background::post(http::Request hints) {
  const std::lock_guard lock(mutex_);
  start();
  hints_ = std::move(hints);
  changed_.notify_all();
}

void Background::forget() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return fit_ != Fit::kRunning; });
  fit_ = Fit::kNone;
  fitted_.reset();
  hints_.reset();
}

void Background::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !stopping_ && (fit_ == Fit::kQueued || hints_); });
    if (fit_ == Fit::kQueued) {
      fit_ = Fit::kRunning;
      const auto observations = std::move(observations_);
      lock.unlock();
      auto fitted = fit(observations);
      lock.lock();
      fitted_ = fitted;
      fit_ = Fit::kDone;
    } else {
      posting_ = true;
      const http::Request hints = *std::exchange(hints_, {});
      lock.unlock();
      post_now(hints);
      lock.lock();
      posting_ = false;
    }
    changed_.notify_all();
  }
}

void Background::post_now(const http::Request& hints) {
  // The libraries that HTTP loads also clean up at exit. Exit handlers run in reverse order, so this one, registered
  // after theirs, stops the thread before they clean up.
  if (!std::exchange(http_ready_, true) && http::available()) std::atexit([] { instance().stop(); });
  const auto problem = send_hints(hints, give_up_.get_token());
  if (problem && !outage_)
    log::warn(fmt::format("scheduling hints are not being posted: {}; training continues", *problem));
  if (!problem && outage_) log::info("scheduling hints are being posted again");
  outage_ = problem.has_value();
}

void Background::stop() {
  std::unique_lock lock(mutex_);
  if (stopping_) return;  // already called
  if (fit_ == Fit::kQueued) fit_ = Fit::kNone;
  const auto is_idle = [this] { return !posting_ && fit_ != Fit::kRunning; };
  const bool in_time = changed_.wait_for(lock, last_post, [&] { return is_idle() && !hints_; });
  stopping_ = true;
  hints_.reset();
  if (in_time) return;
  give_up_.request_stop();
  changed_.wait_for(lock, kGivingUp, is_idle);
}

}  // namespace adaptdl::metrics
