#include <doctest/doctest.h>

#include <vector>

#include "golden.h"
#include "simulator/application.h"
#include "simulator_files.h"

namespace adaptdl::sched::traces_test {
namespace {

constexpr std::string_view kPlacements = "placement,local_bsz,step_time,sync_time\n1,4,0.1,0\n1,8,0.2,0\n2,4,0.2,0.1\n";
constexpr std::string_view kValidation =
    "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.5,1,4\n20,20,0.6,1,2\n30,30,0.7,1,1\n";
constexpr std::string_view kLargerValidation =
    "progress,iteration,metric,grad_sqr,grad_var\n12,4,0.5,2,8\n18,6,-1,2,4\n";

void write_application(const TemporaryDirectory& directory) {
  directory.write("app/placements.csv", kPlacements);
  directory.write("app/validation-8.csv", kValidation);
  directory.write("app/validation-32.csv", kLargerValidation);
}

// Returns the error for an application in which this file has this text.
std::string wrong(const std::string& file, std::string_view text) {
  const TemporaryDirectory directory;
  write_application(directory);
  directory.write("app/" + file, text);
  const std::string error = error_of(directory, [&] { load_traces(directory.path()); });
  CHECK(error.find('\n') == std::string::npos);
  return error;
}

TEST_CASE("the paper's six applications are loaded with their authors' settings") {
  const Applications applications = load_traces(osdi21() / "traces");
  const std::map<std::string, std::vector<std::size_t>> expected = {
      // epochs, minimum and maximum batch size, minimum and maximum local batch size
      {"bert", {2, 12, 384, 4, 12}},          {"cifar10", {100, 128, 4096, 32, 1024}},
      {"deepspeech2", {80, 20, 640, 10, 80}}, {"imagenet", {90, 200, 12800, 20, 200}},
      {"ncf", {10, 256, 32768, 32, 32768}},   {"yolov3", {50, 8, 512, 4, 8}}};
  REQUIRE(applications.size() == expected.size());
  for (const auto& each : expected) {
    const std::string& name = each.first;
    CAPTURE(name);
    const Application& application = *applications.at(name);
    CHECK(application.name() == name);
    CHECK(std::vector<std::size_t>{static_cast<std::size_t>(application.epochs()), application.init_batch_size(),
                                   application.max_batch_size(), application.min_local_bsz(),
                                   application.max_local_bsz()} == each.second);
    CHECK(application.fixed_batch_size() == (name == "ncf" ? std::optional<std::size_t>(32768) : std::nullopt));
    CHECK(application.max_replicas() == (name == "ncf" ? 1 : 64));
  }
}

TEST_CASE("bundled settings apply to the paper's data, but not to other data of the same name") {
  for (const bool same : {true, false}) {
    const TemporaryDirectory directory;
    std::filesystem::copy(osdi21() / "traces/yolov3", directory.path() / "yolov3");
    std::filesystem::remove(directory.path() / "yolov3/application.json");
    if (!same) std::ofstream(directory.path() / "yolov3/placements.csv", std::ios::app) << "1,16,1.5,0.1\n";
    CHECK(load_traces(directory.path(), osdi21() / "traces").at("yolov3")->max_local_bsz() == (same ? 8 : 16));
  }
}

TEST_CASE("statistics are linear between validated batch sizes and constant beyond them") {
  const TemporaryDirectory directory;
  write_application(directory);
  const std::shared_ptr<const Application> loaded = load_traces(directory.path()).at("app");
  const Application& application = *loaded;
  CHECK(application.epochs() == 2);  // the minimum over all batch sizes
  CHECK(application.grad_params(8, 0).var == 4);
  CHECK(application.grad_params(14, 0).var == doctest::Approx(5));
  CHECK(application.grad_params(14, 1).sqr == doctest::Approx(1.25));
  CHECK(application.grad_params(64, 1).var == 4);
  CHECK(application.grad_params(4, 1).var == 2);
  CHECK(application.iterations_after(8, 0) == 0);
  CHECK(application.iterations_after(8, 2) == 20);
  CHECK(application.iterations_after(20, 2) == doctest::Approx(13));
}

TEST_CASE("an epoch requires the minimum progress of all validated batch sizes") {
  const TemporaryDirectory directory;
  write_application(directory);
  const std::shared_ptr<const Application> loaded = load_traces(directory.path()).at("app");
  const Application& application = *loaded;
  CHECK(application.progress_after(0) == 0);
  CHECK(application.progress_after(1) == 10);
  CHECK(application.progress_after(2) == 18);
}

TEST_CASE("settings override values derived from the measurements") {
  const TemporaryDirectory directory;
  write_application(directory);
  directory.write(
      "app/application.json",
      R"({"epochs": 1, "min_local_bsz": 5, "max_local_bsz": 6, "fixed_batch_size": 16, "max_replicas": 3})");
  const std::shared_ptr<const Application> loaded = load_traces(directory.path()).at("app");
  const Application& application = *loaded;
  CHECK(application.epochs() == 1);
  CHECK(application.min_local_bsz() == 5);
  CHECK(application.max_local_bsz() == 6);
  CHECK(application.fixed_batch_size() == 16);
  CHECK(application.max_replicas() == 3);
}

TEST_CASE("invalid settings are rejected with their location") {
  CHECK_GOLDEN(wrong("application.json", "{\n  \"epochs\": }"));
  CHECK_GOLDEN(wrong("application.json", ""));
  CHECK_GOLDEN(wrong("application.json", "[1]"));
  CHECK_GOLDEN(wrong("application.json", "{\n  \"epoch\": 3}"));
  CHECK_GOLDEN(wrong("application.json", "{\"epochs\": 3}"));
  for (const char* text : {R"({"epochs": 0})", R"({"epochs": -1})", R"({"epochs": 1.5})", R"({"epochs": "1"})",
                           R"({"min_local_bsz": 3})", R"({"max_local_bsz": 9})", R"({"fixed_batch_size": 7})",
                           R"({"fixed_batch_size": 33})", R"({"max_replicas": 0})", R"({"max_replicas": null})"}) {
    CAPTURE(text);
    CHECK(wrong("application.json", text).starts_with("app/application.json:1:2: "));
  }
}

TEST_CASE("impossible step times are rejected") {
  const auto row = [](std::string_view text) {
    return wrong("placements.csv", std::string("placement,local_bsz,step_time,sync_time\n").append(text) + "\n");
  };
  CHECK(row("1,4,0.1,0") == "");
  CHECK_GOLDEN(row("10,4,0.1,0"));
  CHECK(row(",4,0.1,0").starts_with("app/placements.csv:2:1: "));
  CHECK(row("1,0,0.1,0").starts_with("app/placements.csv:2:3: "));
  CHECK_GOLDEN(row("1,4,0,0"));
  CHECK(row("1,4,-1,0").starts_with("app/placements.csv:2:5: "));
  CHECK_GOLDEN(row("1,4,0.1,0.1"));
  CHECK(row("1,4,0.1,nan").starts_with("app/placements.csv:2:9: "));
  CHECK_GOLDEN(wrong("scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,3,4,0.1,0\n"));
}

TEST_CASE("training curves that do not increase are rejected") {
  const auto rows = [](std::string_view text) {
    return wrong("validation-8.csv", std::string("progress,iteration,metric,grad_sqr,grad_var\n").append(text));
  };
  CHECK_GOLDEN(rows("10,10,0.5,1,4\n10,20,0.5,1,4\n"));
  CHECK_GOLDEN(rows("10,10,0.5,1,4\n20,9,0.5,1,4\n"));
  CHECK_GOLDEN(rows("0,10,0.5,1,4\n"));
  CHECK_GOLDEN(rows("10,10,0.5,-1,4\n"));
}

TEST_CASE("missing and misnamed files are reported by name") {
  CHECK_GOLDEN(wrong("validation-x.csv", kValidation));
  CHECK_GOLDEN(wrong("validation-08.csv", kValidation));
  CHECK_GOLDEN(wrong("validation-.csv", kValidation));

  const TemporaryDirectory directory;
  CHECK_GOLDEN(error_of(directory, [&] { load_traces(directory.path()); }));
  CHECK_GOLDEN(error_of(directory, [&] { load_traces(directory.path() / "none"); }));
  std::filesystem::create_directory(directory.path() / "app");
  CHECK_GOLDEN(error_of(directory, [&] { load_traces(directory.path()); }));
  directory.write("app/validation-8.csv", kValidation);
  CHECK_GOLDEN(error_of(directory, [&] { load_traces(directory.path()); }));
  directory.write("app/placements.csv", "placement,local_bsz,step_time,sync_time\n1,16,1,0\n");
  CHECK_GOLDEN(error_of(directory, [&] { load_traces(directory.path()); }));
}

}  // namespace
}  // namespace adaptdl::sched::traces_test
