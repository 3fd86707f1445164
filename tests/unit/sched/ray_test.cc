#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../runtime/http_support.h"
#include "adaptdl/error.h"
#include "ray/access.h"
#include "ray/job_server.h"
#include "ray/package.h"

namespace ray_test {

using namespace adaptdl;
using namespace adaptdl::ray;
using adaptdl::testing::Answer;
using adaptdl::testing::Server;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Sets environment variables during its lifetime, and unsets Ray's other variables. HOME is an empty directory.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, std::string>>& values = {}) {
    for (const char* name : kNames) ::unsetenv(name);
    ::setenv("HOME", home_.c_str(), 1);
    for (const auto& [name, value] : values) ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : kNames) ::unsetenv(name);
    fs::remove_all(home_);
  }
  const fs::path& home() const { return home_; }

 private:
  static constexpr const char* kNames[] = {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "RAY_AUTH_TOKEN",
                                           "RAY_AUTH_TOKEN_PATH", "RAY_JOB_HEADERS"};
  static fs::path make_home() {
    std::string path = (fs::temp_directory_path() / "adaptdl-ray-XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    return path;
  }
  const fs::path home_ = make_home();
};

void write(const fs::path& path, const std::string& text, mode_t mode = 0644) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::trunc) << text;
  ::chmod(path.c_str(), mode);
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Access access_to(const Server& server) { return {.url = server.url(), .headers = {}}; }

}  // namespace

TEST_CASE("the address of a Ray cluster comes from the option, or else from Ray's variables") {
  const Environment environment({{"RAY_ADDRESS", "http://b:1"}, {"RAY_API_SERVER_ADDRESS", "http://a:1/"}});
  CHECK(find_access("https://head:8265/").url == "https://head:8265");
  CHECK(find_access("").url == "http://a:1");
  ::unsetenv("RAY_API_SERVER_ADDRESS");
  CHECK(find_access("").url == "http://b:1");
}

TEST_CASE("an address that is missing or not a URL is a usage error") {
  const Environment environment;
  CHECK_THROWS_AS(find_access(""), UsageError);
  CHECK_THROWS_AS(find_access("ray://head:10001"), UsageError);
  ::setenv("RAY_ADDRESS", "127.0.0.1:6379", 1);
  CHECK_THROWS_AS(find_access(""), UsageError);
}

TEST_CASE("tokens and headers are found where Ray's own commands find them") {
  const Environment environment;
  const auto headers = [] { return find_access("http://head:1").headers; };
  CHECK(headers().empty());
  write(environment.home() / ".ray/auth_token", " default \n");
  CHECK(headers() == std::vector<std::string>{"Authorization: Bearer default"});
  write(environment.home() / "other", "file\n");
  ::setenv("RAY_AUTH_TOKEN_PATH", (environment.home() / "other").c_str(), 1);
  CHECK(headers() == std::vector<std::string>{"Authorization: Bearer file"});
  ::setenv("RAY_AUTH_TOKEN", "variable", 1);
  ::setenv("RAY_JOB_HEADERS", R"({"X-Team": "vision"})", 1);
  CHECK(headers() == std::vector<std::string>{"Authorization: Bearer variable", "X-Team: vision"});
}

TEST_CASE("invalid headers and unreadable tokens are rejected") {
  const Environment environment;
  const auto find = [] { find_access("http://head:1"); };
  for (const char* headers : {"X-Team: vision", "[]", R"({"X-Team": 1})", R"({"X-Team": "a\nb"})"}) {
    ::setenv("RAY_JOB_HEADERS", headers, 1);
    CHECK_THROWS_AS(find(), UsageError);
  }
  ::unsetenv("RAY_JOB_HEADERS");
  ::setenv("RAY_AUTH_TOKEN_PATH", (environment.home() / "missing").c_str(), 1);
  CHECK_THROWS_AS(find(), Error);
  write(environment.home() / "missing", "\n");
  CHECK_THROWS_AS(find(), Error);
}

TEST_CASE("jobs are read from the server's answers, and drivers without a submission are left out") {
  Server server({{200, R"([{"submission_id": "b", "status": "RUNNING", "start_time": 2000, "metadata": {"k": "v"}},
                           {"submission_id": null, "job_id": "01", "status": "RUNNING"},
                           {"submission_id": "a", "status": "FAILED", "message": "why", "start_time": 1000,
                            "end_time": 1500, "driver_exit_code": 3}])"}});
  JobServer client(access_to(server));
  const std::vector<Job> jobs = client.list();
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].id == "a");
  CHECK(jobs[0].status == Job::Status::kFailed);
  CHECK(jobs[0].message == "why");
  CHECK(jobs[0].exit_code == 3);
  CHECK(jobs[0].end == std::chrono::system_clock::time_point(std::chrono::milliseconds(1500)));
  CHECK(jobs[1].metadata.at("k") == "v");
  CHECK_FALSE(jobs[1].ended());
}

TEST_CASE("a submission carries the entrypoint, the package, the environment and the metadata") {
  Server server({{200, R"({"submission_id": "job-1"})"}});
  JobServer({.url = server.url(), .headers = {"Authorization: Bearer secret"}})
      .submit({.id = "job-1",
               .entrypoint = "python d.py",
               .package_uri = "gcs://p.zip",
               .environment = {{"A", "b"}},
               .metadata = {{"k", "v"}},
               .runtime_env = {{"pip", {"x"}}, {"env_vars", {{"A", "a"}, {"B", "b"}}}}});
  const json request = server.request();
  CHECK(request[0] == "POST");
  CHECK(request[1] == "/api/jobs/");
  CHECK(request[2] == "Bearer secret");
  CHECK(json::parse(request[3].get<std::string>()) ==
        json{{"submission_id", "job-1"},
             {"entrypoint", "python d.py"},
             {"runtime_env", {{"working_dir", "gcs://p.zip"}, {"pip", {"x"}}, {"env_vars", {{"A", "b"}, {"B", "b"}}}}},
             {"metadata", {{"k", "v"}}}});
}

TEST_CASE("a package that the server already has is not uploaded again") {
  const Environment environment;
  write(environment.home() / "p.zip", "content");
  Server server({{200, ""}, {404, ""}, {200, ""}});
  JobServer client(access_to(server));
  std::uint64_t sent = 0;
  const auto upload = [&] {
    return client.upload("p.zip", environment.home() / "p.zip", {}, [&sent](std::uint64_t count) { sent = count; });
  };
  CHECK(upload() == "gcs://p.zip");
  CHECK(sent == 0);
  CHECK(upload() == "gcs://p.zip");
  CHECK(sent == 7);
  CHECK(server.request()[0] == "GET");
  CHECK(server.request()[0] == "GET");
  const json put = server.request();
  CHECK(put[0] == "PUT");
  CHECK(put[1] == "/api/packages/gcs/p.zip");
  CHECK(put[3] == "content");
}

TEST_CASE("errors of the job server name its URL and the reason in one line" * doctest::test_suite("slow")) {
  const auto failure = [](const Answer& answer, const auto& call) {
    Server server({answer});
    JobServer client(access_to(server));
    const std::string error = error_of([&] { call(client); });
    CHECK(error.find(server.url()) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
    return error;
  };
  const auto version = [](JobServer& client) { client.check_version(); };
  CHECK(failure({401, "no"}, version).find("RAY_AUTH_TOKEN") != std::string::npos);
  CHECK(failure({200, "<html>"}, version).find("is not a Ray job server") != std::string::npos);
  CHECK(failure({200, R"({"version": "4"})"}, version).find("is not a Ray job server") != std::string::npos);
  CHECK(failure({200, R"({"ray_version": "1.13.0"})"}, version).find("1.13.0") != std::string::npos);
  CHECK(failure({500, "Traceback:\n  at x\nRuntimeError: disk full\n"}, [](JobServer& client) {
          client.list();
        }).find("RuntimeError: disk full") != std::string::npos);
  const Environment environment;
  write(environment.home() / "p.zip", "content");
  const std::string too_large =
      "Traceback:\n  at x\nValueError: Package size (600.00MiB) exceeds the maximum size of 500.00MiB. To exclude "
      "large "
      "files, add them to '.gitignore'.\n";
  Server server(
      {{404, ""}, {413, "no"}, {404, ""}, {500, too_large}, {404, ""}, {500, "x\nRuntimeError: disk full\n"}});
  JobServer client(access_to(server));
  const auto upload = [&] { client.upload("p.zip", environment.home() / "p.zip", {}, [](std::uint64_t) {}); };
  const std::string package = "the package (0.00 MiB) is too large for the Ray cluster '" + server.url() + "'";
  CHECK(error_of(upload).starts_with(package + "; "));
  CHECK(error_of(upload).starts_with(package + ", which allows 500.00 MiB; "));
  CHECK(error_of(upload).ends_with(server.url() + "' answered 500: RuntimeError: disk full"));
}

TEST_CASE("an unreachable server is reported at once, or after the given time for retries" *
          doctest::test_suite("slow")) {
  JobServer client({.url = "http://127.0.0.1:1", .headers = {}});
  CHECK(error_of([&] { client.list(); }).find("connection refused") != std::string::npos);
  JobServer patient({.url = "http://127.0.0.1:1", .headers = {}}, std::chrono::seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  CHECK(error_of([&] { patient.list(); }).find("connection refused") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(1));
}

TEST_CASE("looking up a job that does not exist returns nothing, and a duplicate job name is a usage error") {
  Server server({{404, "Job x does not exist"}, {400, "Job with submission_id x already exists."}});
  JobServer client(access_to(server));
  CHECK_FALSE(client.find("x"));
  CHECK_THROWS_AS(client.submit({.id = "x", .entrypoint = "", .package_uri = "", .environment = {}, .metadata = {}}),
                  UsageError);
}

TEST_CASE("a wait for the end of a job has a time limit, and also ends on a stop request or if the job is removed" *
          doctest::test_suite("slow")) {
  const auto job = [](const char* status) {
    return Answer{200, json{{"submission_id", "x"}, {"status", status}}.dump()};
  };
  Server server({job("PENDING"), job("RUNNING"), job("SUCCEEDED"), job("RUNNING"), job("RUNNING"), job("RUNNING"),
                 {404, "Job x does not exist"}});
  JobServer client(access_to(server));
  CHECK(client.wait_for_end("x").value().status == Job::Status::kSucceeded);
  CHECK(client.wait_for_end("x", std::chrono::milliseconds(0)).value().status == Job::Status::kRunning);
  std::stop_source stopped;
  stopped.request_stop();
  CHECK(client.wait_for_end("x", {}, stopped.get_token()).value().status == Job::Status::kRunning);
  CHECK_FALSE(client.wait_for_end("x"));
}

TEST_CASE("the record of a job is removed, but not before the server has finished with it" *
          doctest::test_suite("slow")) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto job = [](std::int64_t end) {
    return Answer{200, json{{"submission_id", "x"}, {"status", "FAILED"}, {"end_time", end}}.dump()};
  };
  Server server({job(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()), {200, "{}"}, job(1000),
                 {200, "{}"}, {404, "Job x does not exist"}, {404, "Job x does not exist"}});
  JobServer client(access_to(server));
  const auto begin = std::chrono::steady_clock::now();
  client.remove("x");
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(2));
  client.remove("x");
  CHECK(error_of([&] { client.remove("x"); }).find(server.url()) != std::string::npos);
  for (const char* method : {"GET", "DELETE", "GET", "DELETE", "GET", "DELETE"}) CHECK(server.request()[0] == method);
}

TEST_CASE("a package contains the project's files and the additional ones, and restores their modes") {
  const Environment environment;
  const fs::path project = environment.home() / "project", out = environment.home() / "out";
  write(project / "program", "#!/bin/sh\n", 0755);
  write(project / "data/a.txt", "text");
  write(project / "data/skipped", "text");
  write(environment.home() / "driver.py", "driver");
  fs::create_symlink("a.txt", project / "data/link");
  fs::create_directory_symlink("data", project / "directory-link");
  std::vector<std::string> notices;
  const PackageOptions options{.project = project,
                               .files = {{".adaptdl/driver.py", environment.home() / "driver.py"}},
                               .excludes = [](const std::string& path, bool) { return path == "data/skipped"; },
                               .notice = [&notices](const std::string& text) { notices.push_back(text); }};
  const Package package(options);
  CHECK(package.size() == fs::file_size(package.path()));
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].find("directory-link") != std::string::npos);
  // Ray unpacks packages in this way.
  const std::string unpack =
      "python3 -c \"import sys, zipfile, os\n"
      "z = zipfile.ZipFile(sys.argv[1])\n"
      "for i in z.infolist():\n"
      " z.extract(i, sys.argv[2])\n"
      " mode = i.external_attr >> 16\n"
      " if mode & 0o111: os.chmod(os.path.join(sys.argv[2], i.filename), 0o755)\n"
      "\" " +
      package.path().string() + ' ' + out.string();
  REQUIRE(std::system(unpack.c_str()) == 0);
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), out).string());
  }
  std::ranges::sort(names);
  CHECK(names == std::vector<std::string>{".adaptdl/driver.py", "data/a.txt", "data/link", "program"});
  CHECK((fs::status(out / "program").permissions() & fs::perms::owner_exec) != fs::perms::none);
  CHECK(fs::file_size(out / "data/link") == 4);
}

TEST_CASE("packages with the same content have the same name, whatever the dates of their files") {
  const Environment environment;
  const fs::path project = environment.home() / "project";
  write(project / "file", "text");
  const auto name = [&] { return Package({.project = project, .files = {}}).name(); };
  const std::string first = name();
  fs::last_write_time(project / "file", fs::file_time_type::clock::now() - std::chrono::hours(1000));
  CHECK(name() == first);
  write(project / "file", "other");
  CHECK(name() != first);
}

TEST_CASE("a package that cannot be created leaves no file") {
  const Environment environment;
  const std::string before = fs::temp_directory_path();
  fs::create_directory(environment.home() / "tmp");
  ::setenv("TMPDIR", (environment.home() / "tmp").c_str(), 1);
  CHECK_THROWS_AS(Package({.project = environment.home() / "missing", .files = {}}), Error);
  CHECK(fs::is_empty(environment.home() / "tmp"));
  ::setenv("TMPDIR", before.c_str(), 1);
}

}  // namespace ray_test
