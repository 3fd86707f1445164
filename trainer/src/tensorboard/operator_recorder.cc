#include "tensorboard/operator_recorder.h"

#include <ATen/record_function.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"

namespace adaptdl::internal {

namespace {

using Clock = std::chrono::steady_clock;

// How long to wait for asynchronous operators. A communication backend's work ends shortly after the call that waited
// for it.
constexpr std::chrono::seconds kAsyncPatience{1};

// A global object, because LibTorch's observers are plain functions. Never destroyed, because operators may end at any
// time.
struct Recording {
  std::atomic<std::uint64_t> current{0};  // number of the recording; 0: none
  std::mutex mutex;                       // guards the members below
  std::uint64_t last = 0;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  OperatorRecord record;
  std::size_t async_running = 0;
  std::condition_variable async_ended;
};
Recording& recording() {
  static auto* const instance = new Recording;
  return *instance;
}

struct OperatorStart final : at::ObserverContext {
  std::uint64_t number = 0;  // number of the recording
  bool async = false;        // whether async_running counts it
  pid_t thread = 0;
  Clock::time_point begin;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto& all = recording();
  const auto number = all.current.load(std::memory_order_relaxed);
  if (number == 0) return nullptr;
  auto start = std::make_unique<OperatorStart>();
  start->number = number;
  start->thread = ::gettid();
  if (function.isAsync()) {
    const std::lock_guard lock(all.mutex);
    start->async = all.current.load(std::memory_order_relaxed) == number;
    if (start->async) ++all.async_running;
  }
  start->begin = Clock::now();
  return start;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto now = Clock::now();
  const auto& start = static_cast<const OperatorStart&>(*context);
  const std::string_view name = function.name();
  RecordedOperator recorded{.name = std::string(name.substr(0, OperatorRecorder::kMaxName)),
                            .begin = start.begin,
                            .end = now,
                            .thread = start.thread,
                            .user_scope = function.scope() == at::RecordScope::USER_SCOPE,
                            .async = function.isAsync()};
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  if (all.current.load(std::memory_order_relaxed) != start.number) return;
  if (start.async && --all.async_running == 0) all.async_ended.notify_all();
  if (all.record.operators.size() < OperatorRecorder::kMaxOperators) {
    all.record.operators.push_back(std::move(recorded));
  } else {
    ++all.record.dropped;
  }
}

std::uint64_t begin_recording() {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  if (all.current != 0) throw UsageError("a profiler trace is already being recorded; end it before starting another");
  all.current = ++all.last;
  using enum at::RecordScope;
  all.handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                         .scopes({FUNCTION, BACKWARD_FUNCTION, TORCHSCRIPT_FUNCTION, USER_SCOPE}));
  return all.current;
}

}  // namespace

OperatorRecorder::OperatorRecorder() : number_(begin_recording()) {}
OperatorRecorder::~OperatorRecorder() { finish(); }

OperatorRecord OperatorRecorder::finish() {
  auto& all = recording();
  std::unique_lock lock(all.mutex);
  if (all.current != number_) return {};
  all.async_ended.wait_for(lock, kAsyncPatience, [&] { return all.async_running == 0; });
  at::removeCallback(all.handle);
  all.current = all.async_running = 0;
  return std::exchange(all.record, {});
}

}  // namespace adaptdl::internal
