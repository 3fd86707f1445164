// Tests the manifests and the error responses of registries.
#include "image/registry/manifest.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "adaptdl/error.h"
#include "golden.h"
#include "image/base/digest.h"
#include "image/base/parallel.h"
#include "image/registry/registry_error.h"
#include "image/registry/retry.h"

namespace image_manifest_test {

using namespace adaptdl;
using namespace adaptdl::image;
using namespace std::chrono_literals;

namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

std::string manifest_of(const std::string& size, const std::string& type = "") {
  return fmt::format(R"({{"schemaVersion": 2, {} "config": {{"mediaType": "c", "digest": "{}", "size": 7}},
      "layers": [{{"mediaType": "l", "digest": "{}", "size": {}}}]}})",
                     type.empty() ? "" : fmt::format(R"("mediaType": "{}",)", type), kDigest, kDigest, size);
}

std::string refusal(const std::string& text, std::string_view type = "") {
  try {
    parse_manifest(text, type);
    return "taken";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string chosen(const std::vector<std::string>& platforms, const std::string& machine) {
  Index index;
  for (const std::string& each : platforms) {
    index.manifests.push_back({"", each, 0, {}});
    const std::size_t slash = each.find('/'), second = std::min(each.find('/', slash + 1), each.size());
    if (!each.empty())
      index.manifests.back().platform =
          Platform::of_image(each.substr(0, slash), each.substr(slash + 1, second - slash - 1),
                             second < each.size() ? each.substr(second + 1) : "");
  }
  try {
    return choose(index, Platform::parse(machine)).digest;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("OCI and Docker manifests are parsed with the digest of their bytes") {
  for (const std::string_view type : {media::kManifest, media::kDockerManifest}) {
    const std::string text = manifest_of("9", std::string(type));
    const auto manifest = std::get<Manifest>(parse_manifest(text, fmt::format("{}; charset=utf-8", type)));
    CHECK(manifest.media_type == type);
    CHECK(manifest.digest == sha256(text));
    CHECK(manifest.bytes == text);
    CHECK(manifest.config.size == 7);
    CHECK(manifest.layers.at(0).size == 9);
  }
  CHECK(std::get<Manifest>(parse_manifest(manifest_of("9"), "")).media_type == media::kManifest);
}

TEST_CASE("an invalid manifest is rejected with the reason") {
  CHECK_GOLDEN(refusal("["));
  CHECK_GOLDEN(refusal("{}"));
  CHECK_GOLDEN(refusal(R"({"layers": [], "manifests": []})"));
  CHECK_GOLDEN(refusal(R"({"schemaVersion": 1, "fsLayers": []})"));
  CHECK_GOLDEN(refusal("{}", "application/vnd.docker.distribution.manifest.v1+prettyjws"));
  CHECK_GOLDEN(refusal(manifest_of("9", std::string(media::kManifest)), media::kDockerManifest));
  CHECK(refusal(manifest_of("9"), media::kIndex).find("the manifest does not match its media type") == 0);
  CHECK(refusal(manifest_of("9"), "application/x").find("not supported") != std::string::npos);
  for (const char* size : {"-1", "1.5", "\"1\"", "18446744073709551615", "1e3"}) {
    CAPTURE(size);
    CHECK_GOLDEN(refusal(manifest_of(size)));
  }
  CHECK(refusal(R"({"layers": [{"digest": "sha256:x", "size": 1}], "config": {}})")
            .find("config has no sha256 or sha512 digest") == 0);
}

TEST_CASE("the image that best fits the platform is chosen from an index") {
  CHECK(chosen({"linux/amd64", "linux/arm64"}, "linux/arm64/v8") == "linux/arm64");
  CHECK(chosen({"Linux/arm64/V8"}, "linux/aarch64") == "Linux/arm64/V8");
  CHECK(chosen({"linux/arm/v5", "linux/arm/v6", "linux/arm/v7"}, "linux/arm/v6") == "linux/arm/v6");
  CHECK(chosen({"linux/arm/v5", "linux/arm/v6"}, "linux/arm") == "linux/arm/v6");
  CHECK(chosen({"linux/amd64", "linux/amd64/v3"}, "linux/amd64") == "linux/amd64");
  CHECK(chosen({"linux/amd64", "linux/amd64/v3"}, "linux/amd64/v4") == "linux/amd64/v3");
  CHECK_GOLDEN(chosen({"linux/arm/v7"}, "linux/arm/v6"));
  CHECK_GOLDEN(chosen({"unknown/unknown", "windows/amd64"}, "linux/amd64"));
  CHECK(chosen({""}, "linux/amd64") == "");
}

TEST_CASE("a registry's refusal is reported in one line, with the reason and what to do") {
  const auto message_of = [](int status, const std::string& body, const std::string& credentials = "") {
    return std::string(refusal_error("cannot push image 'r/x'", "r", {status, body, {}, {}}, credentials).what());
  };
  CHECK_GOLDEN(
      message_of(403, R"({"errors": [{"code": "DENIED", "message": "requested access\nis denied"}]})", "f.json"));
  CHECK_GOLDEN(message_of(401, ""));
  CHECK_GOLDEN(
      message_of(404, R"({"errors": [{"code": "NAME_UNKNOWN", "message": "repository name not known to registry"}]})"));
  CHECK_GOLDEN(message_of(418, "<html>"));
}

TEST_CASE("requests are retried up to a limit after transient errors, and not retried after permanent ones") {
  const RetryRule rule{3, 1ms, 2ms, 5s};
  const auto tries = [&](auto thrown) {
    Retrier retrier(rule, {});
    for (int count = 1;; ++count) try {
        thrown();
      } catch (...) {
        try {
          retrier.wait();
        } catch (const Error&) {
          return count;
        }
      }
  };
  CHECK(tries([] { throw http::ConnectionError("broken"); }) == 3);
  CHECK(tries([] { throw RegistryError("busy", 503); }) == 3);
  CHECK(tries([] { throw RegistryError("slow down", 429, {}, 6s); }) == 1);
  CHECK(tries([] { throw RegistryError("no", 403); }) == 1);
  CHECK(tries([] { throw RegistryError("write: no space left on device", 500); }) == 1);
  CHECK(tries([] { throw Error("wrong"); }) == 1);
}

TEST_CASE("a stop request ends the wait before a retry") {
  std::stop_source stop;
  stop.request_stop();
  Retrier retrier({3, 60s, 60s, 60s}, stop.get_token());
  try {
    throw http::ConnectionError("broken");
  } catch (...) {
    CHECK_THROWS_AS(retrier.wait(), http::Stopped);
  }
}

TEST_CASE("the first failure of a parallel loop stops the other tasks and is thrown") {
  std::atomic<int> begun = 0, stopped = 0;
  CHECK_THROWS_WITH_AS(for_each_parallel(100, 4, {},
                                         [&](std::size_t i, const std::stop_token& stop) {
                                           ++begun;
                                           if (i == 2) throw Error("the third");
                                           while (!stop.stop_requested()) std::this_thread::yield();
                                           ++stopped;
                                           throw http::Stopped();
                                         }),
                       "the third", Error);
  CHECK(begun == stopped + 1);
  CHECK(begun <= 4);
  std::atomic<int> done = 0;
  for_each_parallel(50, 4, {}, [&](auto&&...) { ++done; });
  CHECK(done == 50);
}

}  // namespace image_manifest_test
