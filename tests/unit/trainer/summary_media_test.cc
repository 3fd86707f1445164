// Tests images, precision-recall curves, and scalars of several runs as readers see them. The real TensorBoard reads
// them in tests/e2e/tensorboard_test.py.
#include <png.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/summary_writer.h"
#include "elastic_job.h"
#include "event_records.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_media_test {

namespace {

namespace fs = std::filesystem;
using adaptdl::SummaryWriter;
using testing::Event;
using testing::events_of;
using testing::files_in;
using testing::TemporaryDirectory;

// Returns the events in the directory's only file, without the first, which gives the version.
std::vector<Event> logged_in(const fs::path& directory) {
  fs::path only;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    CHECK(only.empty());
    only = entry.path();
  }
  auto events = events_of(only);
  events.erase(events.begin());
  return events;
}

// Returns the events of one writer.
template <class Use>
std::vector<Event> logged(Use use) {
  const TemporaryDirectory directory;
  {
    SummaryWriter writer(directory.path());
    use(writer);
  }
  return logged_in(directory.path());
}

// Returns the pixels of an image as [channels, height, width].
at::Tensor decoded(const testing::Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&png, image.encoded.data(), image.encoded.size()) != 0);
  REQUIRE((png.height == static_cast<unsigned>(image.height) && png.width == static_cast<unsigned>(image.width)));
  REQUIRE(PNG_IMAGE_SAMPLE_CHANNELS(png.format) == static_cast<unsigned>(image.colorspace));
  CHECK((png.format & PNG_FORMAT_FLAG_LINEAR) == 0);
  auto pixels = torch::empty({image.height, image.width, image.colorspace}, torch::kByte);
  REQUIRE(png_image_finish_read(&png, nullptr, pixels.data_ptr(), 0, nullptr) != 0);
  return pixels.permute({2, 0, 1});
}

std::vector<std::int64_t> steps_of(const std::vector<Event>& events) {
  std::vector<std::int64_t> steps;
  for (const auto& event : events) {
    if (event.scalar) steps.push_back(event.step);
  }
  return steps;
}

// Returns the step from which the file of these events discards earlier events; nullopt if it discards none.
std::optional<std::int64_t> session_of(const std::vector<Event>& events) {
  if (events.size() < 3 || !events[2].starts_session) return std::nullopt;
  return events[2].step;
}

// Checks that a row of a curve has these numbers.
void check_row(const Event& event, std::size_t row, const std::vector<double>& expected) {
  const auto thresholds = event.tensor.floats.size() / 6;
  REQUIRE(expected.size() == thresholds);
  for (std::size_t i = 0; i < thresholds; ++i)
    CHECK(event.tensor.floats[row * thresholds + i] == doctest::Approx(expected[i]));
}

}  // namespace

// Test cases that call fork() must come first, because LibTorch's threads do not survive a fork.

TEST_CASE("when a job resumes, runs of add_scalars discard steps logged after the checkpoint") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  const auto program = [&](bool killed) {
    return [&, killed](int) {
      SummaryWriter writer(directory, {.flush_every = std::chrono::milliseconds(0)});
      writer.add_scalars("loss", {{"old", 1}}, 9);
      adaptdl::checkpoint::save_all_states();
      writer.add_scalars("loss", {{"new", 2}, {"old", 3}}, 10);
      if (killed) kill(getpid(), SIGKILL);
    };
  };
  CHECK(job.run(1, program(true)) == std::vector<int>{128 + SIGKILL});
  CHECK(steps_of(events_of(files_in(directory / "loss_old").at(0))) == std::vector<std::int64_t>{9, 10});
  job.run_to(0, 1, program(false));
  const auto old = events_of(files_in(directory / "loss_old").at(1));
  CHECK(session_of(old) == 10);
  CHECK(steps_of(old) == std::vector<std::int64_t>{10});
  // The first event of this run is later than the checkpoint.
  const auto later = events_of(files_in(directory / "loss_new").at(1));
  CHECK(session_of(later) == 0);
  CHECK(steps_of(later) == std::vector<std::int64_t>{10});
}

TEST_CASE("a writer without events at the checkpoint discards all earlier events on resume") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  CHECK(job.run(1, [&](int) {
    SummaryWriter writer(directory, {.flush_every = std::chrono::milliseconds(0)});
    adaptdl::checkpoint::save_all_states();
    writer.add_scalar("loss", 1, 1);
    kill(getpid(), SIGKILL);
  }) == std::vector<int>{128 + SIGKILL});
  job.run_to(0, 1, [&](int) { SummaryWriter writer(directory); });
  CHECK(session_of(events_of(files_in(directory).at(0))) == std::nullopt);
  CHECK(session_of(events_of(files_in(directory).at(1))) == 0);
}

TEST_CASE("purge_step applies to the runs of add_scalars") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  const auto program = [&](adaptdl::SummaryWriterOptions options) {
    return [&, options](int) {
      SummaryWriter writer(directory, options);
      writer.add_scalars("early", {{"train", 1}}, 6);
      writer.add_scalars("loss", {{"train", 1}}, 7);
      adaptdl::checkpoint::save_all_states();
    };
  };
  job.run_to(0, 1, program({}));
  job.run_to(0, 1, program({.purge_step = 7}));
  const auto early = events_of(files_in(directory / "early_train").at(1));
  const auto late = events_of(files_in(directory / "loss_train").at(1));
  CHECK((session_of(early) == 7 && session_of(late) == 7));
  CHECK(steps_of(early).empty());  // the first run has logged step 6
  CHECK(steps_of(late) == std::vector<std::int64_t>{7});
}

TEST_CASE("only rank 0 writes runs, images and curves unless all_ranks is set") {
  const testing::ElasticJob job;
  job.run_to(0, 2, [&](int rank) {
    SummaryWriter writer(job.path() / ("rank" + std::to_string(rank)));
    SummaryWriter all(job.path() / ("all" + std::to_string(rank)), {.all_ranks = true});
    for (auto* each : {&writer, &all}) {
      each->add_scalars("a", {{"x", 1}, {"y", 2}}, 1);
      each->add_image("b", torch::zeros({4, 4}), 1);
      each->add_images("c", torch::zeros({2, 3, 4, 4}), 1);
      each->add_pr_curve("d", torch::ones({3}), torch::ones({3}), 1);
      each->flush();
    }
  });
  CHECK_FALSE(fs::exists(job.path() / "rank1"));
  for (const char* writer : {"rank0", "all0", "all1"}) {
    CHECK(logged_in(job.path() / writer).size() == 3);
    CHECK(logged_in(job.path() / writer / "a_x").size() == 1);
    CHECK(logged_in(job.path() / writer / "a_y").size() == 1);
  }
}

TEST_CASE("a run that cannot be created causes one warning, and other runs are written") {
  const testing::ElasticJob job;
  const auto directory = job.path() / "events";
  fs::create_directory(directory);
  std::ofstream(directory / "loss_bad") << "in the way";
  job.run_to(0, 1, [&](int) {
    SummaryWriter writer(directory);
    for (const int step : {0, 1, 2}) {
      if (step == 2) fs::remove(directory / "loss_bad");
      writer.add_scalars("loss", {{"bad", 1}, {"good", 1}}, step);
    }
  });
  CHECK(steps_of(logged_in(directory / "loss_good")) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(steps_of(logged_in(directory / "loss_bad")) == std::vector<std::int64_t>{2});
  const auto errors = job.errors();
  const auto warning =
      "adaptdl: warning: training continues without these events: TensorBoard: cannot write events to '" +
      (directory / "loss_bad").string();
  const auto at = errors.find(warning);
  REQUIRE(at != std::string::npos);
  CHECK(errors.find(warning, at + 1) == std::string::npos);
}

TEST_CASE("add_scalars writes one run per name under the main tag") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path(), {.flush_every = std::chrono::hours(1)});
  writer.add_scalars("loss/all", {{"train", 0.25}, {"a/../../b", 2}, {"\xff", 3}}, 7);
  writer.add_scalars("loss/all", {{"train", std::numeric_limits<double>::infinity()}}, 8);
  writer.flush();
  const auto train = logged_in(directory.path() / "loss_all_train");
  REQUIRE(train.size() == 2);
  CHECK((train[0].tag == "loss/all" && train[0].scalar == 0.25f && train[0].step == 7));
  CHECK(std::isinf(*train[1].scalar));
  CHECK(logged_in(directory.path() / "loss_all_a_.._.._b").at(0).scalar == 2.0f);
  CHECK(logged_in(directory.path() / "loss_all_\xef\xbf\xbd").at(0).scalar == 3.0f);
  CHECK(logged_in(directory.path()).empty());
}

TEST_CASE("images keep their pixels for all channels, types and layouts") {
  torch::manual_seed(1);
  const auto bytes = [](at::IntArrayRef shape) { return torch::randint(256, shape, torch::kByte); };
  const auto plane = bytes({5, 7}), gray = bytes({1, 5, 7}), rgb = bytes({3, 4, 6}), rgba = bytes({4, 3, 2});
  const auto transposed = bytes({6, 4, 3}).permute({2, 1, 0});
  const auto events = logged([&](SummaryWriter& writer) {
    writer.add_image("plane", plane, 3);
    writer.add_image("gray", gray, 3);
    writer.add_image("rgb", rgb, 3);
    writer.add_image("rgba", rgba, 3);
    writer.add_image("transposed", transposed, 3);
    writer.add_image("float", rgb.to(torch::kFloat).div(255).requires_grad_(), 3);
    writer.add_image("double", rgba.to(torch::kDouble).div(255), 3);
  });
  REQUIRE(events.size() == 7);
  CHECK((events[0].tag == "plane" && events[0].step == 3));
  const std::vector<at::Tensor> expected = {plane.unsqueeze(0), gray, rgb, rgba, transposed, rgb, rgba};
  for (std::size_t i = 0; i < events.size(); ++i) {
    CAPTURE(events[i].tag);
    CHECK(torch::equal(decoded(*events[i].image), expected[i]));
  }
}

TEST_CASE("floating-point pixels are rounded and clamped, and NaN is black") {
  const auto infinity = std::numeric_limits<float>::infinity();
  const auto events = logged([&](SummaryWriter& writer) {
    writer.add_image("a", torch::tensor({{-1.0f, -infinity, std::nanf(""), 0.302f}, {0.999f, 1.0f, 1.5f, infinity}}),
                     0);
    writer.add_image("b", torch::tensor({{0.0f, 0.5f, 1.0f}}).to(torch::kHalf), 0);
  });
  REQUIRE(events.size() == 2);
  const auto expected = torch::tensor({{{0, 0, 0, 77}, {255, 255, 255, 255}}}, torch::kByte);
  CHECK(torch::equal(decoded(*events[0].image), expected));
  CHECK(torch::equal(decoded(*events[1].image), torch::tensor({{{0, 128, 255}}}, torch::kByte)));
}

TEST_CASE("add_images arranges 8 images per row without borders") {
  const auto images = torch::arange(10, torch::kByte).view({10, 1, 1, 1}).add(1).expand({10, 3, 2, 5});
  const auto events = logged([&](SummaryWriter& writer) {
    writer.add_images("two rows", images, 0);
    writer.add_images("one row", images.slice(0, 0, 3), 0);
    writer.add_images("float", images.slice(0, 0, 1).to(torch::kFloat).div(255), 0);
  });
  REQUIRE(events.size() == 3);
  const auto grid = decoded(*events[0].image);
  REQUIRE(grid.sizes().equals({3, 4, 40}));
  for (std::int64_t i = 0; i < 16; ++i) {
    const auto cell = grid.slice(1, i / 8 * 2, i / 8 * 2 + 2).slice(2, i % 8 * 5, i % 8 * 5 + 5);
    CHECK(cell.eq(i < 10 ? i + 1 : 0).all().item<bool>());
  }
  CHECK(torch::equal(decoded(*events[1].image), grid.slice(1, 0, 2).slice(2, 0, 15)));
  CHECK(torch::equal(decoded(*events[2].image), grid.slice(1, 0, 2).slice(2, 0, 5)));
}

TEST_CASE("tensors that are not images are rejected with their type and shape") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  CHECK_THROWS_WITH_AS(writer.add_image("a", torch::zeros({2, 4, 4}), 0),
                       "invalid image 'a': expected uint8 or floating point [height, width], or [1, 3 or 4, height, "
                       "width], got Float [2, 4, 4]",
                       adaptdl::UsageError);
  CHECK_THROWS_WITH_AS(writer.add_images("a", torch::zeros({1, 3, 4, 4}, torch::kLong), 0),
                       "invalid image 'a': expected uint8 or floating point [number, 1, 3 or 4, height, width], got "
                       "Long [1, 3, 4, 4]",
                       adaptdl::UsageError);
  for (const auto& wrong : {at::Tensor(), torch::zeros({}), torch::zeros({3}), torch::zeros({0, 4}),
                            torch::zeros({1, 3, 4, 4}), torch::zeros({4, 4}, torch::kBool)})
    CHECK_THROWS_AS(writer.add_image("a", wrong, 0), adaptdl::UsageError);
  for (const auto& wrong : {at::Tensor(), torch::zeros({3, 4, 4}), torch::zeros({0, 3, 4, 4})})
    CHECK_THROWS_AS(writer.add_images("a", wrong, 0), adaptdl::UsageError);
  CHECK_THROWS_WITH_AS(writer.add_image("wide", torch::zeros({1, 1'000'001}, torch::kByte), 0),
                       doctest::Contains("cannot encode image 'wide' of 1000001 x 1 pixels: "), adaptdl::UsageError);
  CHECK_THROWS_WITH_AS(
      writer.add_image("large", torch::zeros({1, 1}, torch::kByte).expand({1 << 15, (1 << 15) + 1}), 0),
      "invalid image 'large': it must have at most 1073741824 bytes of pixels, got 1073774592", adaptdl::UsageError);
  writer.flush();
  CHECK(logged_in(directory.path()).empty());
}

TEST_CASE("a PR curve counts predictions at or above each threshold") {
  torch::manual_seed(2);
  constexpr int kSamples = 1000, kThresholds = 50;
  const auto labels = torch::randint(2, {kSamples}, torch::kLong);
  const auto predictions = torch::rand({kSamples}, torch::kDouble);
  const auto events =
      logged([&](SummaryWriter& writer) { writer.add_pr_curve("pr", labels, predictions, 4, kThresholds); });
  REQUIRE(events.size() == 1);
  CHECK((events[0].tag == "pr" && events[0].step == 4));
  CHECK(events[0].plugin == "pr_curves");
  CHECK(events[0].plugin_content == "\x10\x32");  // num_thresholds: 50
  CHECK(events[0].tensor.shape == std::vector<std::int64_t>{6, kThresholds});
  std::vector<std::vector<double>> rows(6, std::vector<double>(kThresholds));
  for (std::size_t i = 0; i < kThresholds; ++i) {
    const auto above = predictions.ge(static_cast<double>(i) / (kThresholds - 1));
    const auto number = [](const at::Tensor& set) { return static_cast<double>(set.sum().item<std::int64_t>()); };
    const double tp = number(above.logical_and(labels.eq(1))), fp = number(above.logical_and(labels.eq(0)));
    const double fn = number(labels.eq(1)) - tp;
    rows[0][i] = tp;
    rows[1][i] = fp;
    rows[2][i] = number(labels.eq(0)) - fp;
    rows[3][i] = fn;
    rows[4][i] = tp + fp > 0 ? tp / (tp + fp) : 0;
    rows[5][i] = tp / (tp + fn);
  }
  for (std::size_t row = 0; row < rows.size(); ++row) check_row(events[0], row, rows[row]);
}

TEST_CASE("a PR curve defaults to 127 thresholds, accepts any label type and shape, and ignores NaN") {
  const auto events = logged([](SummaryWriter& writer) {
    writer.add_pr_curve("default", torch::tensor({true, false}), torch::tensor({1.0f, 0.0f}), 0);
    writer.add_pr_curve("shape", torch::tensor({1.0f, 0.0f}), torch::tensor({{0.9f}, {0.1f}}), 0, 2);
    const auto half = torch::tensor({0.5f, 1.0f, std::nanf("")}).to(torch::kHalf);
    writer.add_pr_curve("half", torch::tensor({0, 1, 1}), half, 0, 3);
    writer.add_pr_curve("rounded", torch::tensor({1, 0}), torch::tensor({1.000001f, -0.000001f}), 0, 2);
    writer.add_pr_curve("none", torch::zeros({0}), torch::zeros({0}), 0, 2);
  });
  REQUIRE(events.size() == 5);
  CHECK(events[0].tensor.shape == std::vector<std::int64_t>{6, 127});
  check_row(events[0], 0, std::vector<double>(127, 1));
  check_row(events[1], 0, {1, 0});
  check_row(events[1], 1, {1, 0});
  check_row(events[2], 0, {1, 1, 1});
  check_row(events[2], 1, {1, 1, 0});
  check_row(events[2], 4, {0.5, 0.5, 1});
  check_row(events[3], 0, {1, 1});
  check_row(events[3], 2, {0, 1});
  for (std::size_t row = 0; row < 6; ++row) check_row(events[4], row, {0, 0});
}

TEST_CASE("invalid PR curve inputs are rejected with an explanation") {
  const TemporaryDirectory directory;
  SummaryWriter writer(directory.path());
  const auto labels = torch::tensor({0, 1}), predictions = torch::tensor({0.25f, 0.75f});
  const auto refused = [&](const at::Tensor& some_labels, const at::Tensor& some_predictions, int num_thresholds,
                           const char* reason) {
    CHECK_THROWS_WITH_AS(writer.add_pr_curve("pr", some_labels, some_predictions, 0, num_thresholds),
                         ("invalid PR curve 'pr': " + std::string(reason)).c_str(), adaptdl::UsageError);
  };
  refused(labels, predictions * 20, 127, "predictions must be between 0 and 1; apply sigmoid or softmax to logits");
  refused(labels, labels, 127, "predictions must be floating-point numbers");
  refused(labels, {}, 127, "predictions must be floating-point numbers");
  refused({}, predictions, 127, "labels must be real numbers");
  refused(labels + 1, predictions, 127, "labels must be 0 or 1");
  refused(torch::ones({3}), predictions, 127, "expected as many labels as predictions, got 3 and 2");
  refused(labels, predictions, 1, "num_thresholds must be between 2 and 10000, got 1");
  writer.flush();
  CHECK(logged_in(directory.path()).empty());
}

}  // namespace summary_media_test
