// Tests which credentials are sent to a registry, and how its challenges are parsed.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "error_of.h"
#include "golden.h"
#include "image/registry/authorizer.h"
#include "image/registry/challenge.h"
#include "image/registry/credential_helper.h"
#include "image/registry/registry_auth.h"
#include "temporary_directory.h"

namespace image_auth_test {

using namespace adaptdl;
using namespace adaptdl::image;
using namespace std::chrono_literals;
using ::testing::error_of;

namespace {

std::string user_for(const std::string& text, const std::string& registry, const std::string& repository = "x/y") {
  const auto found = find_auth(parse_auth_file(text, "f"), registry, repository);
  return found ? found->user : "nobody";
}

// Installs a shell script as a credential helper in the PATH.
class Helper {
 public:
  explicit Helper(const std::string& script) {
    const auto file = directory_.path() / "docker-credential-unit";
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    ::chmod(file.c_str(), 0755);
    ::setenv("PATH", (directory_.path().string() + ":" + path_).c_str(), 1);
  }
  ~Helper() { ::setenv("PATH", path_.c_str(), 1); }
  std::filesystem::path directory() const { return directory_.path(); }

 private:
  testing::TemporaryDirectory directory_;
  const std::string path_ = std::getenv("PATH");
};

}  // namespace

TEST_CASE("an entry in a credentials file can hold base64 credentials, a plain user and password, or a token") {
  const AuthFile file = parse_auth_file(
      R"({"auths": {"a": {"auth": ")" + encode_base64("ada:p:w") + R"("}, "b": {"username": "u", "password": "p"},
          "c": {"identitytoken": "i"}, "d": {"registrytoken": "r"}, "e": {}, "f": null}, "HttpHeaders": {"x": "y"}})",
      "f");
  CHECK(find_auth(file, "a", "")->user == "ada");
  CHECK(find_auth(file, "a", "")->password == "p:w");
  CHECK(find_auth(file, "b", "")->password == "p");
  CHECK(find_auth(file, "c", "")->identity_token == "i");
  CHECK(find_auth(file, "d", "")->registry_token == "r");
  CHECK_FALSE(find_auth(file, "e", ""));
  CHECK_FALSE(find_auth(file, "f", ""));
  CHECK_FALSE(find_auth(parse_auth_file(" \n", "f"), "a", ""));
}

TEST_CASE("credentials for a repository take precedence over those for its registry, and keys may be legacy URLs") {
  const std::string text = R"({"auths": {"r:5000": {"username": "registry"}, "r:5000/x": {"username": "team"},
      "r:5000/x/y": {"username": "image"}, "https://index.docker.io/v1/": {"username": "hub"},
      "https://old.example/v2/": {"username": "old"}, "plain.example/v1/": {"username": "plain"}}})";
  CHECK(user_for(text, "r:5000", "x/y") == "image");
  CHECK(user_for(text, "r:5000", "x/z") == "team");
  CHECK(user_for(text, "r:5000", "xx/z") == "registry");
  CHECK(user_for(text, "r", "x/y") == "nobody");
  CHECK(user_for(text, "docker.io", "library/busybox") == "hub");
  CHECK(user_for(text, "old.example") == "old");
  CHECK(user_for(text, "plain.example") == "plain");
}

TEST_CASE("the error for an invalid credentials file gives the reason without revealing secrets") {
  const auto message_of = [](const std::string& text) {
    return error_of([&] { parse_auth_file(text, "config.json"); });
  };
  CHECK_GOLDEN(message_of("[]"));
  CHECK_GOLDEN(message_of("{\"auths\""));
  CHECK_GOLDEN(message_of(R"({"auths": []})"));
  CHECK_GOLDEN(message_of(R"({"auths": {"r": {"auth": "c2VjcmV0"}}})"));
  CHECK_GOLDEN(message_of(R"({"auths": {"r": {"auth": 1}}})"));
  CHECK_GOLDEN(message_of(R"({"credHelpers": {"r": 1}})"));
}

TEST_CASE("REGISTRY_AUTH_FILE overrides the default files: Docker's config.json, then containers/auth.json") {
  std::map<std::string, std::string> variables = {{"HOME", "/h"}, {"XDG_RUNTIME_DIR", "/run/1"}};
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  auto places = auth_places(variable);
  REQUIRE(places.size() == 2);
  CHECK(places[0].file == "/h/.docker/config.json");
  CHECK(places[1].file == "/run/1/containers/auth.json");
  variables["DOCKER_CONFIG"] = "/d";
  CHECK(auth_places(variable)[0].file == "/d/config.json");
  variables["REGISTRY_AUTH_FILE"] = "/named";
  places = auth_places(variable);
  REQUIRE(places.size() == 1);
  CHECK(places[0].file == "/named");
  CHECK(places[0].required);
}

TEST_CASE("a registry's own helper takes precedence over the default one, and both over entries in the file") {
  const Helper helper(R"(read -r server; echo "{\"Username\": \"helped for $server\", \"Secret\": \"s\"}")");
  const auto file = helper.directory() / "f";
  const auto user = [&](const std::string& text) {
    std::ofstream(file) << text;
    return find_credentials("r", "x", {{file}}).user;
  };
  CHECK(user(R"({"credHelpers": {"r": "unit"}, "credsStore": "missing", "auths": {"r": {"username": "old"}}})") ==
        "helped for r");
  CHECK(user(R"({"credsStore": "unit", "auths": {"r": {"username": "old"}}})") == "helped for r");
  CHECK(user(R"({"credHelpers": {"other": "unit"}, "auths": {"r": {"username": "old"}}})") == "old");
  CHECK(find_credentials("docker.io", "x", {{file}}).user == "");
  std::ofstream(file) << R"({"credsStore": "unit"})";
  CHECK(find_credentials("docker.io", "x", {{file}}).user == "helped for https://index.docker.io/v1/");
}

TEST_CASE("the file's entry is used if the helper has no credentials for the registry") {
  const Helper helper("echo 'credentials not found in native keychain'; exit 1");
  const auto file = helper.directory() / "f";
  std::ofstream(file) << R"({"credsStore": "unit", "auths": {"r": {"username": "kept"}}})";
  CHECK(find_credentials("r", "x", {{file}}).user == "kept");
  CHECK(find_credentials("other", "x", {{file}}).empty());
}

TEST_CASE("a failing helper is reported in one line, without output that may contain secrets") {
  const auto message_of = [](const std::string& name, std::chrono::milliseconds patience = 10s) {
    return error_of([&] { ask_helper(name, "r", patience); });
  };
  CHECK_GOLDEN(message_of("missing"));
  CHECK_GOLDEN(message_of("../x"));
  {
    const Helper helper("echo 'the keychain is'; echo locked; exit 3");
    CHECK_GOLDEN(message_of("unit"));
  }
  {
    const Helper helper("echo 'secret'");
    CHECK_GOLDEN(message_of("unit"));
  }
  const Helper helper("sleep 60");
  const auto start = std::chrono::steady_clock::now();
  CHECK_GOLDEN(message_of("unit", 200ms));
  CHECK(std::chrono::steady_clock::now() - start < 40s);
}

TEST_CASE("a helper's user name <token> marks the secret as an identity token") {
  const Credentials credentials = parse_helper_answer(R"({"ServerURL": "x", "Username": "<token>", "Secret": "t"})");
  CHECK(credentials.identity_token == "t");
  CHECK(credentials.user.empty());
  CHECK_THROWS_AS(parse_helper_answer(R"({"Username": "u"})"), Error);
}

TEST_CASE("a WWW-Authenticate header with several challenges is parsed with their parameters") {
  const auto challenges = parse_challenges(
      R"(Bearer realm="https://auth.example/token?a=b,c",service="registry",scope="repository:a/b:pull,push", BASIC realm = "a \"b\"", Negotiate)");
  REQUIRE(challenges.size() == 3);
  CHECK(challenges[0].scheme == "bearer");
  CHECK(challenges[0].parameter("realm") == "https://auth.example/token?a=b,c");
  CHECK(challenges[0].parameter("scope") == "repository:a/b:pull,push");
  CHECK(challenges[0].parameter("error") == "");
  CHECK(challenges[1].scheme == "basic");
  CHECK(challenges[1].parameter("realm") == "a \"b\"");
  CHECK(challenges[2].scheme == "negotiate");
}

TEST_CASE("malformed challenges and parameters are ignored") {
  CHECK(parse_challenges("").empty());
  CHECK(parse_challenges("realm=\"x\"").empty());
  CHECK(parse_challenges("\"\"").empty());
  CHECK(parse_challenges("Bearer realm=\"no end").front().parameters.empty());
  CHECK(parse_challenges(" , ,Basic").size() == 1);
}

TEST_CASE("a token's lifetime defaults to 60 seconds, and invalid tokens are rejected") {
  CHECK(parse_token(R"({"token": "t"})")->lifetime == 60s);
  CHECK(parse_token(R"({"access_token": "t", "expires_in": 300})")->lifetime == 300s);
  CHECK(parse_token(R"({"access_token": "a", "token": "t"})")->token == "t");
  CHECK_FALSE(parse_token(R"({"token": ""})"));
  CHECK_FALSE(parse_token(R"({"token": "a\r\nX: y"})"));
  CHECK_FALSE(parse_token("[]"));
}

TEST_CASE("credentials are not sent to a token server without HTTPS") {
  Authorizer authorizer({"r", false,
                         [](auto&&...) {
                           return Credentials{"u", "p", "", "", "f"};
                         },
                         [](auto&&...) -> http::Response {
                           FAIL("sent");
                           return {};
                         }});
  const http::Response refusal{401, "", {{"www-authenticate", R"(Bearer realm="http://evil.example/t")"}}, {}};
  const Scopes scopes = {repository_scope("x", "pull")};
  CHECK(authorizer.header(scopes, {}) == "");
  CHECK(authorizer.refused(refusal, "", scopes));
  CHECK_GOLDEN(error_of([&] { authorizer.header(scopes, {}); }));
}

}  // namespace image_auth_test
