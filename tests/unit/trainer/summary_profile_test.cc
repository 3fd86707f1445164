// Tests profiler traces: files in the format of chrome://tracing.
#include <ATen/record_function.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"
#include "adaptdl/torch/summary_writer.h"
#include "elastic_job.h"
#include "temporary_directory.h"
#include "tensorboard/operator_recorder.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_profile_test {

namespace {

namespace fs = std::filesystem;
using adaptdl::SummaryWriter;
using nlohmann::json;
using testing::TemporaryDirectory;

std::vector<fs::path> traces_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const auto name = entry.path().filename().string();
    CHECK_FALSE(name.ends_with(".tmp"));
    if (name.ends_with(".pt.trace.json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the events of the directory's only trace, and checks that they conform to the format.
std::vector<json> events_in(const fs::path& directory) {
  const auto files = traces_in(directory);
  REQUIRE(files.size() == 1);
  const auto trace = json::parse(std::ifstream(files[0]));
  std::vector<json> events;
  for (const auto& event : trace.at("traceEvents")) {
    CHECK(event.at("name").is_string());
    CHECK(event.at("pid") == getpid());
    CHECK(event.at("tid").is_number_integer());
    const auto phase = event.at("ph").get<std::string>();
    if (phase != "M") CHECK((event.at("ts").get<double>() >= 0 && event.at("cat").is_string()));
    if (phase == "X") CHECK(event.at("dur").get<double>() >= 0);
    events.push_back(event);
  }
  return events;
}

std::vector<json> named(const std::vector<json>& events, const std::string& name) {
  std::vector<json> found;
  for (const auto& event : events) {
    if (event.at("name") == name) found.push_back(event);
  }
  return found;
}

json only(const std::vector<json>& events) {
  REQUIRE(events.size() == 1);
  return events[0];
}

bool contains(const json& outer, const json& inner) {
  const auto begin = [](const json& event) { return event.at("ts").get<double>(); };
  const auto end = [&](const json& event) { return begin(event) + event.at("dur").get<double>(); };
  return begin(outer) <= begin(inner) && end(inner) <= end(outer) + 1e-3;
}

}  // namespace

// Test cases that fork must come first, because LibTorch's threads do not survive a fork.

TEST_CASE("only rank 0 records a profiler trace, which includes its collective operations") {
  const testing::ElasticJob job;
  testing::expect_replicas(2, [&](int rank) {
    job.prepare();
    adaptdl::init_process_group("gloo");
    SummaryWriter writer(job.path() / ("rank" + std::to_string(rank)));
    {
      const auto trace = writer.profile(1);
      EXPECT(at::hasGlobalCallbacks() == (rank == 0));
      torch::nn::Linear net(2, 2);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      adaptdl::AdaptiveDataParallel model(net, optimizer);
      model(torch::ones({1, 2})).sum().backward();
    }
    if (rank == 0) job.note(json::parse(std::ifstream(traces_in(job.path() / "rank0").at(0))).dump());
    adaptdl::destroy_process_group();
  });
  CHECK_FALSE(fs::exists(job.path() / "rank1"));
  const auto trace = json::parse(job.notes().at(0));
  std::vector<std::string> async;  // phases of its events
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "gloo:all_reduce" && event.contains("id")) async.push_back(event.at("ph"));
  }
  CHECK(std::count(async.begin(), async.end(), "b") > 0);
  CHECK(std::count(async.begin(), async.end(), "b") == std::count(async.begin(), async.end(), "e"));
}

TEST_CASE("a profiler trace that cannot be written causes a warning") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  job.run_to(0, 1, [&](int) {
    SummaryWriter writer(directory);
    const auto trace = writer.profile(4);
    fs::remove_all(directory);
  });
  const auto warning = "adaptdl: warning: TensorBoard: cannot write the profiler trace of step 4 to '" +
                       directory.string() + "': No such file or directory; training continues\n";
  CHECK(job.errors().find(warning) != std::string::npos);
}

TEST_CASE("a profiler trace contains a step's nested operators and the program's ranges") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  const auto weight = torch::ones({4, 4}).requires_grad_();
  const auto before = torch::ones({4, 4}).exp();
  {
    const auto trace = writer.profile(7);
    RECORD_USER_SCOPE("for\"ward\n");
    torch::linear(before, weight).relu().sum().backward();
  }
  weight.grad().sqrt();
  const auto events = events_in(directory.path());
  const auto step = only(named(events, "ProfilerStep#7"));
  CHECK((step.at("ph") == "X" && step.at("cat") == "user_annotation" && step.at("tid") == gettid()));
  const auto range = only(named(events, "for\"ward\n"));
  CHECK((range.at("ph") == "X" && range.at("cat") == "user_annotation" && contains(step, range)));
  const auto linear = only(named(events, "aten::linear"));
  CHECK((linear.at("cat") == "cpu_op" && contains(range, linear)));
  CHECK(named(events, "ReluBackward0").size() == 1);
  CHECK(named(events, "aten::exp").empty());
  CHECK(named(events, "aten::sqrt").empty());
  const auto is_inner = [&](const json& event) {
    return event.at("ph") == "X" && event.at("tid") == linear.at("tid") && event != linear && contains(linear, event);
  };
  CHECK(std::any_of(events.begin(), events.end(), is_inner));
}

TEST_CASE("a profiler trace contains the operators of all threads and the thread names") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  std::promise<void> named_thread, written;
  std::thread thread;
  constexpr int kThreads = 4, kCalls = 200;
  {
    const auto trace = writer.profile(0);
    thread = std::thread([&] {
      pthread_setname_np(pthread_self(), "test-worker");
      torch::ones({2}).cos();
      named_thread.set_value();
      written.get_future().wait();
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([] {
        for (int call = 0; call < kCalls; ++call) torch::ones({2}).sin();
      });
    }
    for (auto& each : threads) each.join();
    named_thread.get_future().wait();
  }
  written.set_value();
  thread.join();
  const auto events = events_in(directory.path());
  CHECK(named(events, "aten::sin").size() == kThreads * kCalls);
  const auto tid = only(named(events, "aten::cos")).at("tid");
  const auto is_name = [&](const json& event) {
    return event.at("ph") == "M" && event.at("tid") == tid &&
           event.at("args").at("name").get<std::string>().find("test-worker") != std::string::npos;
  };
  CHECK(std::count_if(events.begin(), events.end(), is_name) == 1);
}

TEST_CASE("a profiler trace ended by an exception is written, and recording stops") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  try {
    const auto trace = writer.profile(3);
    CHECK(at::hasGlobalCallbacks());
    torch::ones({2}).sin();
    torch::ones({2, 3}).matmul(torch::ones({2, 3}));
    FAIL("shapes that do not fit were multiplied");
  } catch (const c10::Error&) {
  }
  CHECK_FALSE(at::hasGlobalCallbacks());
  CHECK(named(events_in(directory.path()), "aten::sin").size() == 1);
}

TEST_CASE("an operator running when a profiler trace ends is in neither that trace nor the next") {
  const TemporaryDirectory first, second;
  SummaryWriter writer(first.path()), other(second.path());
  std::optional<adaptdl::ProfilerTrace> trace = writer.profile(0);
  std::promise<void> begun, ended;
  std::thread thread([&] {
    RECORD_USER_SCOPE("long");
    begun.set_value();
    ended.get_future().wait();
  });
  begun.get_future().wait();
  trace.reset();
  trace = other.profile(1);
  ended.set_value();
  thread.join();
  trace.reset();
  CHECK(named(events_in(first.path()), "long").empty());
  CHECK(named(events_in(second.path()), "long").empty());
}

TEST_CASE("a profiler trace limits the number of operators and the length of their names" *
          doctest::test_suite("slow")) {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  constexpr auto kMax = adaptdl::internal::OperatorRecorder::kMaxOperators;
  {
    const auto trace = writer.profile(0);
    const std::string long_name(10'000, 'x');
    { RECORD_USER_SCOPE(long_name); }
    for (std::size_t i = 0; i < kMax + 10; ++i) {
      RECORD_USER_SCOPE("many");
    }
  }
  std::ifstream file(traces_in(directory.path()).at(0));
  std::size_t many = 0, cut = 0;
  for (std::string line; std::getline(file, line);) {
    many += line.find("\"many\"") != std::string::npos;
    cut += line.find('"' + std::string(256, 'x') + '"') != std::string::npos;
  }
  CHECK(cut == 1);
  CHECK(many == kMax - 1);
}

TEST_CASE("concurrent profiler traces are rejected, and consecutive ones have separate files") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  {
    const auto trace = writer.profile(0);
    CHECK_THROWS_WITH_AS((void)writer.profile(1),
                         "a profiler trace is already being recorded; end it before starting another",
                         adaptdl::UsageError);
    torch::ones({2}).sin();
  }
  { const auto trace = writer.profile(2); }
  const auto files = traces_in(directory.path());
  REQUIRE(files.size() == 2);
  const auto text = [](const fs::path& file) { return json::parse(std::ifstream(file)).dump(); };
  CHECK((text(files[0]).find("ProfilerStep#0") != std::string::npos &&
         text(files[0]).find("aten::sin") != std::string::npos));
  CHECK((text(files[1]).find("ProfilerStep#2") != std::string::npos &&
         text(files[1]).find("aten::sin") == std::string::npos));
}

}  // namespace summary_profile_test
