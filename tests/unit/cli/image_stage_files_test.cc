// Tests what is known about an image's files without reading its layers, and how COPY uses that.
#include "image/build/stage_files.h"

#include <doctest/doctest.h>

#include "image/build/image_config.h"

namespace image_stage_files_test {

using namespace adaptdl::image;

TEST_CASE("in an empty image, only added paths exist, and link targets are unknown") {
  StageFiles files;
  CHECK(files.find("") == PathKind::kDirectory);
  CHECK(files.find("usr") == PathKind::kMissing);
  files.add({.directories = {"app", "app/d"}, .merged = {}, .links = {"app/l"}, .files = {"f", "app/d/f"}});
  CHECK(files.find("app/d") == PathKind::kDirectory);
  CHECK(files.find("app/x/y") == PathKind::kMissing);
  // The target of a link is only known once the layers are read.
  CHECK(files.find("app/l") == PathKind::kUnknown);
  CHECK(files.find("app/l/x") == PathKind::kUnknown);
  for (const char* path : {"f", "app/d/f"}) CHECK(files.find(path) == PathKind::kOther);
  CHECK(files.find("app/d/f/x") == PathKind::kMissing);
}

TEST_CASE("for a base whose layers are not read, paths that its distribution or history may create are unknown") {
  StageFiles files;
  files.begin_unread([](const std::string& path) {
    return text_mentions("RUN useradd -m me && mkdir -p /data /opt/tool COPY docker-entrypoint.sh /usr/local/bin/",
                         path);
  });
  for (const char* path : {"etc", "usr/local/bin", "opt", "var/lib"}) CHECK(files.find(path) == PathKind::kDirectory);
  for (const char* path : {"app", "app/x", "opt/other", "opt/other/x", "usr/src/app", "usr/local/bin/run", "database"})
    CHECK_MESSAGE(files.find(path) == PathKind::kMissing, path);
  for (const char* path : {"bin", "lib/x", "etc/nginx", "usr/share/x", "var/www", "data", "data/x", "opt/tool/x",
                           "home/me", "home/you/x", "usr/local/bin/docker-entrypoint.sh"})
    CHECK_MESSAGE(files.find(path) == PathKind::kUnknown, path);
}

TEST_CASE("after a RUN, only paths added later are known") {
  StageFiles files;
  files.add({.directories = {"app"}, .merged = {}, .links = {}, .files = {"f"}});
  files.forget();
  for (const char* path : {"app", "f"}) CHECK(files.find(path) == PathKind::kUnknown);
  files.add({.directories = {"app/new"}, .merged = {}, .links = {}, .files = {}});
  CHECK(files.find("app/new/x") == PathKind::kMissing);
}

TEST_CASE("an archive's directories replace files, and may already contain other entries") {
  StageFiles files;
  files.begin_unread([](const std::string&) { return false; });
  files.add({.directories = {"app"}, .merged = {}, .links = {}, .files = {"x", "app/f"}});
  files.add(
      {.directories = {}, .merged = {"etc", "etc/app", "app", "app/f", "app/new"}, .links = {}, .files = {"x/y"}});
  for (const char* path : {"etc", "etc/app", "app", "app/f", "app/new"})
    CHECK_MESSAGE(files.find(path) == PathKind::kDirectory, path);
  for (const char* path : {"etc/ssl", "etc/app/x"}) CHECK_MESSAGE(files.find(path) == PathKind::kUnknown, path);
  for (const char* path : {"app/x", "app/new/x"}) CHECK_MESSAGE(files.find(path) == PathKind::kMissing, path);
  CHECK(files.find("x") != PathKind::kOther);
}

TEST_CASE("directories exist if entries below them are added") {
  StageFiles files;
  files.begin_unread([](const std::string&) { return false; });
  files.add({.directories = {}, .merged = {}, .links = {}, .files = {"app/x/y", "etc/app/x", "bin/x"}});
  for (const char* path : {"app", "app/x", "etc"}) CHECK_MESSAGE(files.find(path) == PathKind::kDirectory, path);
  for (const char* path : {"app/y", "app/x/z"}) CHECK_MESSAGE(files.find(path) == PathKind::kMissing, path);
  for (const char* path : {"etc/app", "bin"}) CHECK_MESSAGE(files.find(path) == PathKind::kUnknown, path);
}

TEST_CASE("timestamps of image configurations are parsed in the formats that builders write") {
  CHECK(parse_time("2020-09-13T12:26:40Z") == 1600000000);
  CHECK(parse_time("2020-09-13T12:26:40.123456789Z") == 1600000000);
  CHECK(parse_time("2020-09-13T14:26:40.5+02:00") == 1600000000);
  CHECK(parse_time("0001-01-01T00:00:00Z") == 0);
  CHECK(parse_time("yesterday") == 0);
  CHECK(time_text(1600000000) == "2020-09-13T12:26:40Z");
}

TEST_CASE("an image configuration keeps the unchanged fields of its base's configuration") {
  const ParsedConfig base = parse_config(R"({"architecture": "arm64", "os": "linux", "variant": "v8", "os.version": "1",
    "created": "2020-09-13T12:26:40Z", "container_config": {}, "rootfs": {"type": "layers", "diff_ids": []},
    "config": {"Env": ["A=1", "B"], "Cmd": null, "StopTimeout": 3, "OnBuild": ["RUN x"], "Labels": {"k": "v"}}})");
  CHECK(base.triggers == std::vector<std::string>{"RUN x"});
  const auto image = nlohmann::json::parse(config_json(base.whole, base.config, {}, base.date, {}, {}));
  CHECK(image["config"] == nlohmann::json({{"Env", {"A=1", "B="}}, {"StopTimeout", 3}, {"Labels", {{"k", "v"}}}}));
  CHECK(image["os.version"] == "1");
  CHECK(image["variant"] == "v8");
  CHECK_FALSE(image.contains("container_config"));
}

}  // namespace image_stage_files_test
