#include "tuner/event_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "event_bytes.h"
#include "temporary_directory.h"

namespace adaptdl::sched::tune::tuner_event_files_test {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// Prevents this process from opening any file during the object's lifetime.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

struct EventScene {
  void append(const std::string& file, const std::string& bytes) const {
    fs::create_directories((directory.path() / file).parent_path());
    std::ofstream(directory.path() / file, std::ios::app | std::ios::binary) << bytes;
  }

  EventFiles files(const std::string& metric = "loss") {
    return {directory.path(), metric, [this](std::string_view text) { notices.emplace_back(text); }};
  }

  ::testing::TemporaryDirectory directory;
  std::vector<std::string> notices;
};

// Returns the next results as "STEP:VALUE ...".
std::string read_text(EventFiles& files) {
  std::string text;
  for (const EventResult& event : files.read())
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", event.result.step.value_or(-1), event.result.value);
  return text;
}

TEST_CASE("new files anywhere below the directory are read") {
  EventScene scene;
  EventFiles files(scene.directory.path() / "later", "loss", [](std::string_view) {});
  CHECK(read_text(files) == "");
  scene.append("later/events.out.tfevents.1.host", scalar_record(1, 1, "loss", 0.5f));
  CHECK(read_text(files) == "1:0.5");
  scene.append("later/run/deep/events.out.tfevents.2.host.v2", scalar_record(2, 2, "loss", 0.25f));
  scene.append("later/run/other.txt", scalar_record(3, 3, "loss", 1));
  CHECK(read_text(files) == "2:0.25");
  CHECK(read_text(files) == "");
  CHECK_FALSE(files.has_more());
}

TEST_CASE("the metric matches a tag, or a tag preceded by the names of the directories above its file") {
  EventScene scene;
  scene.append("x/validation/a.tfevents", scalar_record(1, 1, "loss", 1) + scalar_record(2, 2, "val/loss", 2) +
                                              scalar_record(3, 3, "validation/loss", 3));
  scene.append("x/train/a.tfevents", scalar_record(4, 4, "loss", 4) + scalar_record(5, 5, "LOSS", 5));
  const std::vector<std::pair<std::string, std::string>> cases = {{"loss", "1:1 4:4"},
                                                                  {"validation/loss", "1:1 3:3"},
                                                                  {"x/validation/loss", "1:1"},
                                                                  {"train/loss", "4:4"},
                                                                  {"rain/loss", ""},
                                                                  {"val/loss", "2:2"},
                                                                  {"/loss", ""},
                                                                  {"y/train/loss", ""}};
  for (const auto& each : cases) {
    EventFiles files = scene.files(each.first);
    CHECK_MESSAGE(read_text(files) == each.second, each.first);
  }
}

TEST_CASE("results of several writers are ordered by time") {
  EventScene scene;
  scene.append("b.tfevents", scalar_record(1, 1, "loss", 1) + scalar_record(4, 4, "loss", 4));
  scene.append("a.tfevents", scalar_record(2, 2, "loss", 2) + scalar_record(3, 3, "loss", 3));
  EventFiles files = scene.files();
  CHECK(read_text(files) == "1:1 2:2 3:3 4:4");
  // A result that is written late is delivered late.
  scene.append("a.tfevents", scalar_record(6, 6, "loss", 6));
  CHECK(read_text(files) == "6:6");
  scene.append("b.tfevents", scalar_record(5, 5, "loss", 5));
  CHECK(read_text(files) == "5:5");
}

TEST_CASE("a backlog of several writers is read in parts, ordered by time" * doctest::test_suite("slow")) {
  EventScene scene;
  constexpr int kRecords = 60'000;
  std::string even, odd;
  for (int i = 0; i < kRecords; ++i)
    (i % 2 == 0 ? even : odd) += scalar_record(i, static_cast<std::uint64_t>(i), "loss", 1);
  scene.append("a.tfevents", even);
  scene.append("b.tfevents", odd);
  EventFiles files = scene.files();
  std::vector<EventResult> all = files.read();
  CHECK(all.size() < kRecords);
  CHECK(files.has_more());
  while (files.has_more()) std::ranges::move(files.read(), std::back_inserter(all));
  REQUIRE(all.size() == kRecords);
  for (int i = 0; i < kRecords; ++i)
    if (all[static_cast<std::size_t>(i)].result.step != i) FAIL("result " << i << " has another step");
}

TEST_CASE("a record is read once it is complete") {
  EventScene scene;
  EventFiles files = scene.files();
  const std::string record = scalar_record(1, 1, "loss", 0.5f), next = scalar_record(2, 2, "loss", 0.25f);
  for (const char byte : record) {
    CHECK(read_text(files) == "");
    scene.append("a.tfevents", {byte});
  }
  CHECK(read_text(files) == "1:0.5");
  scene.append("a.tfevents", next.substr(0, 20));
  CHECK(read_text(files) == "");
  scene.append("a.tfevents", next.substr(20));
  CHECK(read_text(files) == "2:0.25");
}

TEST_CASE("damaged records are skipped, and a damaged length is reported once") {
  EventScene scene;
  EventFiles files = scene.files();
  std::string damaged = scalar_record(1, 1, "loss", 1);
  damaged[kEventHeader + 1] ^= 1;
  scene.append("a.tfevents", damaged + scalar_record(2, 2, "loss", 2));
  CHECK(read_text(files) == "2:2");
  CHECK(scene.notices.empty());
  scene.append("a.tfevents", std::string(30, 'x') + scalar_record(3, 3, "loss", 3));
  CHECK(read_text(files) == "");
  scene.append("a.tfevents", scalar_record(4, 4, "loss", 4));
  CHECK(read_text(files) == "");
  const std::string file = (scene.directory.path() / "a.tfevents").string();
  REQUIRE(scene.notices.size() == 1);
  CHECK(scene.notices[0] ==
        fmt::format("cannot read file '{}' from byte {}: damaged record; later results in the file are ignored", file,
                    damaged.size() + scalar_record(2, 2, "loss", 2).size()));
  // Other files are still read.
  scene.append("b.tfevents", scalar_record(5, 5, "loss", 5));
  CHECK(read_text(files) == "5:5");
}

TEST_CASE("records of 100 MiB are skipped without being read") {
  EventScene scene;
  EventFiles files = scene.files();
  constexpr std::uint64_t kSize = std::uint64_t{100} << 20;
  const fs::path file = scene.directory.path() / "a.tfevents";
  scene.append("a.tfevents", scalar_record(1, 1, "loss", 1) + event_header(kSize));
  CHECK(read_text(files) == "1:1");
  // A hole takes up no space on the disk.
  fs::resize_file(file, fs::file_size(file) + kSize + 4);
  scene.append("a.tfevents", scalar_record(2, 2, "loss", 2));
  CHECK(read_text(files) == "2:2");
  CHECK_FALSE(files.has_more());
}

TEST_CASE("records of several megabytes are read") {
  EventScene scene;
  EventFiles files = scene.files();
  const std::string image = bytes_field(1, "image") + bytes_field(4, std::string(3'000'000, 'i'));
  scene.append("a.tfevents",
               event_frame(event_of(1, 1, image) + bytes_field(5, bytes_field(1, simple_value("loss", 0.5f)))));
  scene.append("a.tfevents", scalar_record(2, 2, "loss", 2));
  std::string text = read_text(files);
  while (files.has_more()) text += " " + read_text(files);
  CHECK(text == "1:0.5 2:2");
}

TEST_CASE("the last value in a record wins, invalid steps are dropped, and infinity becomes NaN") {
  EventScene scene;
  EventFiles files = scene.files();
  scene.append("a.tfevents",
               event_frame(number_field(2, 3) + bytes_field(5, bytes_field(1, simple_value("loss", 1)) +
                                                                   bytes_field(1, simple_value("other", 2)) +
                                                                   bytes_field(1, simple_value("loss", 3)))));
  CHECK(read_text(files) == "3:3");
  scene.append("a.tfevents", scalar_record(1, static_cast<std::uint64_t>(-5), "loss", 1) +
                                 scalar_record(2, std::uint64_t{1} << 60, "loss", 2) +
                                 scalar_record(3, 9, "loss", -std::numeric_limits<float>::infinity()));
  const auto results = files.read();
  REQUIRE(results.size() == 3);
  CHECK_FALSE(results[0].result.step);
  CHECK_FALSE(results[1].result.step);
  CHECK(std::isnan(results[2].result.value));
  CHECK(results[2].result.step == 9);
}

TEST_CASE("records that were read before are skipped") {
  EventScene scene;
  scene.append("run/a.tfevents", scalar_record(1, 1, "loss", 1) + scalar_record(2, 2, "loss", 2));
  scene.append("b.tfevents", scalar_record(3, 3, "loss", 3));
  EventFiles first = scene.files();
  const auto results = first.read();
  REQUIRE(results.size() == 3);
  CHECK(results[0].file == "run/a.tfevents");
  EventFiles second = scene.files();
  second.skip(results[0].file, results[0].end);
  CHECK(read_text(second) == "2:2 3:3");
  EventFiles third = scene.files();
  third.skip(results[1].file, results[1].end);
  third.skip(results[0].file, results[0].end);
  CHECK(read_text(third) == "3:3");
}

TEST_CASE("no results are lost when descriptors run out") {
  EventScene scene;
  scene.append("a.tfevents", scalar_record(1, 1, "loss", 1));
  EventFiles files = scene.files();
  {
    const NoDescriptors none;
    CHECK(files.read().empty());
    CHECK(files.is_blocked());
    CHECK_FALSE(files.has_more());
  }
  CHECK(read_text(files) == "1:1");
  CHECK_FALSE(files.is_blocked());
  CHECK(scene.notices.empty());
}

TEST_CASE("a truncated or removed file does not block the others") {
  EventScene scene;
  const fs::path file = scene.directory.path() / "a.tfevents";
  EventFiles files = scene.files();
  scene.append("a.tfevents", scalar_record(1, 1, "loss", 1));
  scene.append("b.tfevents", scalar_record(2, 2, "loss", 2));
  CHECK(read_text(files) == "1:1 2:2");
  fs::resize_file(file, 3);
  scene.append("b.tfevents", scalar_record(3, 3, "loss", 3));
  CHECK(read_text(files) == "3:3");
  fs::remove(file);
  ::mkfifo(file.c_str(), 0600);
  scene.append("b.tfevents", scalar_record(4, 4, "loss", 4));
  CHECK(read_text(files) == "4:4");
  CHECK_FALSE(files.has_more());
  CHECK(scene.notices.empty());
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_event_files_test
