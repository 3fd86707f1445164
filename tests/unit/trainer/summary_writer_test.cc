// Tests event files as readers see them: records, messages, and when they are written. The real TensorBoard reads them
// in tests/e2e/tensorboard_test.py.
#include "adaptdl/torch/summary_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/error.h"
#include "event_records.h"
#include "summary_writer_support.h"
#include "temporary_directory.h"
#include "tensorboard/event_file.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_writer_test {

namespace {

namespace fs = std::filesystem;
using adaptdl::SummaryWriter;
using adaptdl::internal::EventFile;
using adaptdl::internal::tfrecord;
using summary_writer_support::kNever;
using testing::content;
using testing::Event;
using testing::events_of;
using testing::files_in;
using testing::TemporaryDirectory;

// Returns the events of one writer in its own directory, without the first, which gives the version.
template <class Use>
std::vector<Event> logged(Use use) {
  const TemporaryDirectory directory;
  {
    SummaryWriter writer(directory.path());
    use(writer);
  }
  auto events = events_of(files_in(directory.path()).at(0));
  events.erase(events.begin());
  return events;
}

// Captures up to 64 KiB of standard error during its lifetime, through a pipe, because the size of files may be
// limited.
class CapturedErrors {
 public:
  CapturedErrors() : saved_(dup(STDERR_FILENO)) {
    if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
    dup2(pipe_[1], STDERR_FILENO);
  }
  ~CapturedErrors() {
    dup2(saved_, STDERR_FILENO);
    for (const int fd : {saved_, pipe_[0], pipe_[1]}) close(fd);
  }
  std::string text() const {
    std::string text(65536, '\0');
    const auto length = read(pipe_[0], text.data(), text.size());
    text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
    return text;
  }

 private:
  int saved_, pipe_[2];
};

// Limits the size of this process's files during its lifetime, so that write(2) fails as on a full disk.
class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit low{.rlim_cur = bytes, .rlim_max = limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~LimitedFiles() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit limit_{};
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

void expect_job_directory(const char* logdir, const char* job, const std::optional<fs::path>& expected) {
  logdir ? setenv("ADAPTDL_TENSORBOARD_LOGDIR", logdir, 1) : unsetenv("ADAPTDL_TENSORBOARD_LOGDIR");
  job ? setenv("ADAPTDL_JOB_ID", job, 1) : unsetenv("ADAPTDL_JOB_ID");
  CHECK(adaptdl::tensorboard_directory() == expected);
  unsetenv("ADAPTDL_TENSORBOARD_LOGDIR");
  unsetenv("ADAPTDL_JOB_ID");
}

}  // namespace

TEST_CASE("record framing matches TensorBoard's") {
  // The expected bytes are written by tensorboard.summary.writer.record_writer.RecordWriter.
  const std::string expected(
      "\x09\0\0\0\0\0\0\0\x37\xf9\x71\x39"
      "123456789"
      "\xe5\xb0\x8a\xc7",
      25);
  CHECK(tfrecord("123456789") == expected);
}

TEST_CASE("the default directory is the job's name under ADAPTDL_TENSORBOARD_LOGDIR") {
  expect_job_directory(nullptr, "namespace/job", std::nullopt);
  expect_job_directory("/logs", "namespace/job", "/logs/job");
  expect_job_directory("/logs", "job", "/logs/job");
  expect_job_directory("/logs", nullptr, "/logs");
}

TEST_CASE("the file name is unique and contains the process ID") {
  const TemporaryDirectory directory;
  const auto nested = directory.path() / "deep" / "run";
  const SummaryWriter writer(nested), other(nested);
  const auto files = files_in(nested);
  REQUIRE(files.size() == 2);
  for (const auto& file : files) {
    const auto name = file.filename().string();
    CHECK(name.starts_with("events.out.tfevents."));
    CHECK(count(name, fmt::format(".{}.", getpid())) == 1);
    const auto events = events_of(file);  // written immediately, so that TensorBoard shows the run
    REQUIRE(events.size() == 1);
    CHECK(events[0].version == "brain.Event:2");
  }
}

TEST_CASE("scalars keep their tag, step and value, including NaN, infinities and 64-bit steps") {
  constexpr std::int64_t kLate = std::int64_t{1} << 40;
  const auto events = logged([](SummaryWriter& writer) {
    writer.add_scalar("loss/train", 0.25, 7);
    writer.add_scalar("nan", std::nan(""), kLate);
    writer.add_scalar("inf", -std::numeric_limits<double>::infinity(), -1);
  });
  REQUIRE(events.size() == 3);
  CHECK((events[0].tag == "loss/train" && events[0].scalar == 0.25f && events[0].step == 7));
  CHECK((std::isnan(*events[1].scalar) && events[1].step == kLate));
  CHECK((std::isinf(*events[2].scalar) && events[2].step == -1));
}

TEST_CASE("invalid UTF-8 in text is replaced, and valid text is unchanged") {
  const auto text_of = [](const std::string& text) {
    return logged([&](SummaryWriter& writer) { writer.add_text("t", text, 0); }).at(0).text;
  };
  for (const char* good : {"", "# plain", "gr\xc3\xbc\xc3\x9f", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(text_of(good) == good);
  const std::string bad = "\xef\xbf\xbd";
  CHECK(text_of("a\xff"
                "b") == "a" + bad + "b");
  CHECK(text_of("a\xc3") == "a" + bad);                         // cut off
  CHECK(text_of("\xc0\x80") == bad + bad);                      // overlong
  CHECK(text_of("\xed\xa0\x80") == bad + bad + bad);            // a surrogate
  CHECK(text_of("\xf4\x90\x80\x80") == bad + bad + bad + bad);  // beyond U+10FFFF
  CHECK(logged([](SummaryWriter& writer) { writer.add_scalar("\xff", 1, 0); }).at(0).tag == bad);
}

TEST_CASE("histograms count every finite value in its bucket" * doctest::test_suite("slow")) {
  torch::manual_seed(5);
  // The values fill several chunks, and include zeros, both signs, and many magnitudes.
  auto values = torch::randn({3, 360'001}, torch::kDouble).pow(5);
  values[0].slice(0, 0, 1000).zero_();
  values[1][0] = 3e30;
  auto with_others = values.clone();
  with_others[2][0] = std::nan("");
  with_others[2][1] = std::numeric_limits<double>::infinity();
  const auto events = logged([&](SummaryWriter& writer) {
    writer.add_histogram("all", values, 3);
    writer.add_histogram("others", with_others, 3);
    writer.add_histogram("transposed", values.t(), 3);
  });
  const auto check = [](const Event& event, at::Tensor tensor) {
    const auto& histogram = *event.histogram;
    tensor = tensor.flatten();
    tensor = tensor.masked_select(tensor.isfinite());
    CHECK(histogram.num == tensor.numel());
    CHECK(histogram.min == tensor.min().item<double>());
    CHECK(histogram.max == tensor.max().item<double>());
    CHECK(histogram.sum == doctest::Approx(tensor.sum().item<double>()).epsilon(1e-12));
    CHECK(histogram.sum_squares == doctest::Approx(tensor.square().sum().item<double>()).epsilon(1e-12));
    REQUIRE(histogram.limits.size() == histogram.counts.size());
    CHECK(std::is_sorted(histogram.limits.begin(), histogram.limits.end()));
    CHECK(histogram.counts.front() > 0);
    CHECK(histogram.counts.back() > 0);
    auto sorted = tensor.contiguous().clone();
    auto* const data = sorted.data_ptr<double>();
    std::sort(data, data + sorted.numel());
    std::int64_t below = 0;
    for (std::size_t i = 0; i < histogram.limits.size(); ++i) {
      const auto end = std::lower_bound(data, data + sorted.numel(), histogram.limits[i]) - data;
      CHECK(histogram.counts[i] == static_cast<double>(end - below));
      below = end;
    }
    CHECK(below == sorted.numel());
  };
  REQUIRE(events.size() == 3);
  check(events[0], values);
  check(events[1], with_others);
  check(events[2], values);
}

TEST_CASE("histogram buckets match TensorFlow's") {
  const auto events = logged([](SummaryWriter& writer) {
    writer.add_histogram("a", std::vector<double>{-1, 0, 0.5, 0.5, 2}, 0);
    writer.add_histogram("ints", torch::tensor({1, 2, 2}), 0);
    writer.add_histogram("halves", torch::tensor({0.5, 1.5}).to(torch::kHalf), 0);
    writer.add_histogram("bools", torch::tensor({true, false}), 0);
    writer.add_histogram("one", torch::scalar_tensor(4), 0);
  });
  const auto& histogram = *events.at(0).histogram;
  // Empty buckets in between are joined.
  CHECK(histogram.counts == std::vector<double>{1, 0, 1, 0, 2, 0, 1});
  std::vector<double> limits;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) limits.push_back(limit);
  const auto above = [&](double value) { return *std::upper_bound(limits.begin(), limits.end(), value); };
  const auto up_to = [&](double value) { return *(std::upper_bound(limits.begin(), limits.end(), value) - 1); };
  CHECK(histogram.limits == std::vector<double>{-up_to(1), 0, 1e-12, up_to(0.5), above(0.5), up_to(2), above(2)});
  CHECK(events.at(1).histogram->num == 3);
  CHECK(events.at(1).histogram->sum_squares == 9);
  CHECK(events.at(2).histogram->sum == 2);
  CHECK(events.at(3).histogram->max == 1);
  CHECK(events.at(4).histogram->min == 4);
}

TEST_CASE("a histogram without finite values has no buckets, and an undefined tensor logs no event") {
  const auto events = logged([](SummaryWriter& writer) {
    writer.add_histogram("none", std::vector<double>{}, 0);
    writer.add_histogram("nan", std::vector<double>{std::nan("")}, 0);
    writer.add_histogram("undefined", at::Tensor(), 0);
  });
  REQUIRE(events.size() == 2);
  for (const auto& event : events) CHECK((event.histogram->num == 0 && event.histogram->counts.empty()));
}

TEST_CASE("an unwritable directory is rejected") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "in the way";
  const auto below = directory.path() / "file" / "events";
  CHECK_THROWS_WITH_AS(SummaryWriter{below},
                       ("TensorBoard: cannot write events to '" + below.string() +
                        "': Not a directory; use another directory, or unset ADAPTDL_TENSORBOARD_LOGDIR")
                           .c_str(),
                       adaptdl::Error);
}

TEST_CASE("events are written after flush_every, or immediately if it is 0") {
  const TemporaryDirectory directory;
  SummaryWriter soon(directory.path() / "soon", {.flush_every = std::chrono::milliseconds(20)});
  soon.add_scalar("a", 1, 1);
  const auto file = files_in(directory.path() / "soon").at(0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (fs::file_size(file) < 60 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(events_of(file).size() == 2);
  SummaryWriter now(directory.path() / "now", {.flush_every = std::chrono::milliseconds(0)});
  now.add_scalar("a", 1, 1);
  CHECK(events_of(files_in(directory.path() / "now").at(0)).size() == 2);
  SummaryWriter on_request(directory.path() / "request", {.flush_every = kNever});
  on_request.add_scalar("a", 1, 1);
  CHECK(events_of(files_in(directory.path() / "request").at(0)).size() == 1);
  on_request.flush();
  CHECK(events_of(files_in(directory.path() / "request").at(0)).size() == 2);
}

TEST_CASE("concurrent logging neither loses nor corrupts records") {
  const TemporaryDirectory directory;
  constexpr int kThreads = 4, kSteps = 2000;
  {
    SummaryWriter writer(directory.path(), {.flush_every = std::chrono::milliseconds(1)});
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int step = 0; step < kSteps; ++step) {
          writer.add_scalar(std::to_string(thread), step, step);
          if (step % 500 == 0) writer.flush();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::map<std::string, std::int64_t> next;
  auto events = events_of(files_in(directory.path()).at(0));
  events.erase(events.begin());
  for (const auto& event : events) CHECK(event.step == next[event.tag]++);
  CHECK(events.size() == kThreads * kSteps);
}

TEST_CASE("a full disk causes one warning, and pending events are written once there is space") {
  const TemporaryDirectory directory;
  {
    SummaryWriter writer(directory.path(), {.flush_every = kNever});
    const CapturedErrors errors;
    {
      const LimitedFiles full(100);  // the limit is in the middle of a record
      for (int step = 0; step < 50; ++step) {
        writer.add_scalar("a", step, step);
        writer.flush();
      }
    }
    writer.flush();
    const auto output = errors.text();
    CHECK(output.starts_with("adaptdl: warning: TensorBoard: cannot write to '" + directory.path().string()));
    CHECK(count(output, "\n") == 1);
  }
  const auto events = events_of(files_in(directory.path()).at(0));
  REQUIRE(events.size() == 51);
  for (std::size_t step = 0; step < 50; ++step) CHECK(events[step + 1].step == static_cast<std::int64_t>(step));
}

TEST_CASE("pending events are bounded in memory, and written records stay complete when events are dropped" *
          doctest::test_suite("slow")) {
  const TemporaryDirectory directory;
  const std::string megabyte(1 << 20, 'x');
  {
    EventFile file(directory.path(), kNever);
    const CapturedErrors errors;
    const LimitedFiles full(10);
    for (int i = 0; i < 70; ++i) file.append(megabyte);
    file.flush();
    CHECK(count(errors.text(), "\n") == 1);
  }
  const auto bytes = content(files_in(directory.path()).at(0));
  const auto record = tfrecord(megabyte);
  CHECK(bytes.size() == EventFile::kMaxWaiting / record.size() * record.size());
  CHECK(bytes.ends_with(record));
}

}  // namespace summary_writer_test
