#include "image/dockerfile/plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "adaptdl/error.h"
#include "golden.h"

namespace image_plan_test {

using namespace adaptdl::image;

namespace {

// Returns the stages and images of the plan as "0 2 : image@platform:LINE", with ! after base images, or the error.
std::string plan_of(const std::string& text, const std::string& target = "", const ImageTriggers& triggers = {},
                    std::map<std::string, std::string> arguments = {}) {
  BuildSettings settings;
  settings.target = Platform::parse("linux/arm64");
  settings.build = Platform::parse("linux/amd64");
  settings.target_stage = target;
  settings.build_arguments = std::move(arguments);
  try {
    const Plan plan = make_plan(parse_dockerfile(text, "Dockerfile"), settings, triggers);
    std::string result;
    for (const PlannedStage& stage : plan.stages) result += fmt::format("{} ", stage.number);
    result += ":";
    for (const NeededImage& image : plan.images)
      result +=
          fmt::format(" {}@{}:{}{}", image.image, image.platform.to_string(), image.lines.first, image.base ? "!" : "");
    return result;
  } catch (const adaptdl::Error& error) {
    return error.what();
  }
}

const char* const kStages =
    "FROM golang AS build\n"
    "FROM node AS unused\n"
    "FROM build AS test\n"
    "RUN --mount=from=tools:1,target=/t x\n"
    "FROM scratch AS out\n"
    "COPY --from=BUILD a b\n"
    "COPY --from=busybox:1 a b\n"
    "COPY --from=0 a b\n"
    "FROM out\n";

}  // namespace

TEST_CASE("a plan contains only the target and the stages and images it needs") {
  CHECK(plan_of(kStages) == "0 3 4 : golang@linux/arm64:1! busybox:1@linux/arm64:7");
  CHECK(plan_of(kStages, "Test") == "0 2 : golang@linux/arm64:1! tools:1@linux/arm64:4");
  CHECK(plan_of(kStages, "1") == "1 : node@linux/arm64:2!");
}

TEST_CASE("the error for an unknown target lists the stages") { CHECK_GOLDEN(plan_of(kStages, "tset")); }

TEST_CASE("FROM is expanded with the ARGs before the first FROM and the platform variables") {
  const char* text =
      "ARG v=1\nARG image=base:$v\nFROM --platform=$BUILDPLATFORM $image AS one\nFROM x-${TARGETARCH}\nCOPY --from=one "
      "a b\n";
  CHECK(plan_of(text) == "0 1 : base:1@linux/amd64:3! x-arm64@linux/arm64:4!");
  CHECK(plan_of(text, "", {}, {{"v", "2"}}) == "0 1 : base:2@linux/amd64:3! x-arm64@linux/arm64:4!");
  CHECK(plan_of("FROM a AS base-arm64\nFROM b AS base-amd64\nFROM base-$TARGETARCH\n") == "0 2 : a@linux/arm64:1!");
}

TEST_CASE("a stage without --platform has the platform of the stage it is based on") {
  BuildSettings settings;
  settings.target = Platform::parse("arm64");
  const Plan plan = make_plan(parse_dockerfile("FROM --platform=amd64 a AS x\nFROM x\n", "Dockerfile"), settings);
  CHECK(plan.stages[1].platform.to_string() == "linux/amd64");
  CHECK(plan.stages[1].base.stage == 0);
}

TEST_CASE("an invalid FROM is reported with its line and cause") {
  CHECK_GOLDEN(plan_of("ARG A=1\n\nFROM $B\n"));
  CHECK_GOLDEN(plan_of("FROM a\nARG tag=1\nFROM b:$tag\n"));
  CHECK_GOLDEN(plan_of("FROM --platform=windows/amd64 a\n"));
  CHECK_GOLDEN(plan_of("FROM ${x\n"));
}

TEST_CASE("ONBUILD triggers of a base stage or image add the stages and images they need") {
  const char* text = "FROM tools AS tools\nFROM a AS one\nONBUILD COPY --from=tools x y\nFROM one\n";
  CHECK(plan_of(text) == "0 1 2 : tools@linux/arm64:1! a@linux/arm64:2!");
  CHECK(plan_of(text, "one") == "1 : a@linux/arm64:2!");
  const ImageTriggers triggers{{"a", {"COPY --from=tools x y", "COPY --from=other x y"}}};
  CHECK(plan_of(text, "one", triggers) == "0 1 : tools@linux/arm64:1! a@linux/arm64:2! other@linux/arm64:2");
}

TEST_CASE("platforms are parsed and normalized to the names used by images") {
  CHECK(Platform::parse("linux/x86_64").to_string() == "linux/amd64");
  CHECK(Platform::parse("aarch64").to_string() == "linux/arm64");
  CHECK(Platform::parse("linux/arm64/v8").to_string() == "linux/arm64");
  CHECK(Platform::parse("linux/arm").to_string() == "linux/arm/v7");
  CHECK(Platform::parse("linux/arm/6").to_string() == "linux/arm/v6");
  CHECK(Platform::parse("linux") == Platform::of_this_machine());
  CHECK_THROWS_AS(Platform::parse("linux/amd64/v2/x"), adaptdl::Error);
  CHECK_THROWS_AS(Platform::parse(""), adaptdl::Error);
}

}  // namespace image_plan_test
