// Writes profiler traces in the format of chrome://tracing.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "adaptdl/log.h"
#include "base/counted.h"
#include "support/replicas.h"
#include "tensorboard/operator_recorder.h"
#include "tensorboard/summary_writer_impl.h"

namespace adaptdl {

namespace {

using Time = std::chrono::steady_clock::time_point;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string thread_name(pid_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/comm", thread));
  std::string name;
  std::getline(file, name);
  return name.empty() ? fmt::format("thread {}", thread) : fmt::format("thread {} ({})", thread, name);
}

// Writes one event per line.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, Time start) : stream_(path), start_(start) { check(); }

  void write(const std::string& step_name, pid_t step_thread, const internal::OperatorRecord& record, Time end) {
    const auto base = std::chrono::system_clock::now().time_since_epoch() - (end - start_);
    stream_ << R"({"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":)"
            << std::chrono::duration_cast<std::chrono::nanoseconds>(base).count() << ",\"traceEvents\":[\n";
    name("process_name", 0, fmt::format("rank {}", internal::replica_rank()));
    std::set<pid_t> threads{step_thread};
    for (const auto& each : record.operators) threads.insert(each.thread);
    for (const auto thread : threads) name("thread_name", thread, thread_name(thread));
    add({step_name, start_, end, step_thread, true, false});
    for (const auto& each : record.operators) add(each);
    stream_ << "\n]}\n";
  }

  // Returns the error of the first write that failed, or 0 if everything was written.
  int close() {
    stream_.close();
    check();
    return error_;
  }

 private:
  void name(const char* what, pid_t thread, const std::string& value) {
    line(fmt::format(R"("ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}})", what, ::getpid(), thread,
                     quoted(value)));
  }

  void add(const internal::RecordedOperator& each) {
    const auto common =
        fmt::format(R"("cat":"{}","name":{},"pid":{},"tid":{})", each.user_scope ? "user_annotation" : "cpu_op",
                    quoted(each.name), ::getpid(), each.thread);
    if (!each.async) {
      line(fmt::format(R"("ph":"X",{},"ts":{},"dur":{})", common, micros(each.begin - start_),
                       micros(each.end - each.begin)));
      return;
    }
    ++async_;
    line(fmt::format(R"("ph":"b","id":{},{},"ts":{})", async_, common, micros(each.begin - start_)));
    line(fmt::format(R"("ph":"e","id":{},{},"ts":{})", async_, common, micros(each.end - start_)));
  }

  static std::string micros(std::chrono::nanoseconds time) {
    return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000);
  }

  void line(const std::string& members) {
    stream_ << std::exchange(separator_, ",\n") << '{' << members << '}';
    check();
  }

  void check() {
    if (!stream_ && error_ == 0) error_ = errno;
  }

  std::ofstream stream_;
  const Time start_;
  const char* separator_ = "";
  int async_ = 0;
  int error_ = 0;
};

}  // namespace

struct ProfilerTrace::Impl {
  Impl(const std::filesystem::path& directory, std::int64_t step_number) : log_dir(directory), step(step_number) {}

  ~Impl() {
    const auto end = std::chrono::steady_clock::now();
    const auto record = recorder.finish();
    try {
      write(record, end);
    } catch (const std::exception& error) {
      warn(error.what());
    }
  }

  void write(const internal::OperatorRecord& record, Time end) const {
    const auto time = std::chrono::system_clock::now().time_since_epoch();
    const auto path = log_dir / fmt::format("{}_{}.{}.pt.trace.json", internal::host_name(), ::getpid(),
                                            std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    // Readers open files whose names end in .json, so an unfinished file has a different name.
    auto unfinished = path;
    unfinished += ".tmp";
    TraceFile file(unfinished, start);
    file.write(fmt::format("ProfilerStep#{}", step), thread, record, end);
    if (const auto error = file.close(); error != 0) {
      std::error_code ignored;
      std::filesystem::remove(unfinished, ignored);
      return warn(std::generic_category().message(error));
    }
    std::filesystem::rename(unfinished, path);
    if (record.dropped > 0) {
      log::warn(
          fmt::format("the profiler trace of step {} lacks the last {}, because it is limited to {}; record a shorter "
                      "range",
                      step, counted(record.dropped, "operator"), record.operators.size()));
    }
  }

  void warn(const std::string& reason) const {
    log::warn(fmt::format("TensorBoard: cannot write the profiler trace of step {} to '{}': {}; training continues",
                          step, log_dir.string(), reason));
  }

  const std::filesystem::path log_dir;
  const std::int64_t step;
  const pid_t thread = ::gettid();
  const Time start = std::chrono::steady_clock::now();
  internal::OperatorRecorder recorder;
};

ProfilerTrace::ProfilerTrace(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ProfilerTrace::ProfilerTrace(ProfilerTrace&&) noexcept = default;
ProfilerTrace& ProfilerTrace::operator=(ProfilerTrace&&) noexcept = default;
ProfilerTrace::~ProfilerTrace() = default;

ProfilerTrace SummaryWriter::profile(std::int64_t step) {
  return ProfilerTrace(impl_->file ? std::make_unique<ProfilerTrace::Impl>(impl_->log_dir, step) : nullptr);
}

}  // namespace adaptdl
