#include "adaptdl/env.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"

namespace env_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using ::testing::error_of;

namespace {

// Sets a variable during its lifetime.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("unset and empty variables yield the defaults") {
  const auto check = [] {
    CHECK_FALSE(env::checkpoint_path());
    CHECK_FALSE(env::share_path());
    CHECK_FALSE(env::job_id());
    CHECK(env::master_addr() == "0.0.0.0");
    CHECK(env::master_port() == 0);
    CHECK(env::replica_rank() == 0);
    CHECK(env::num_nodes() == 1);
    CHECK(env::num_replicas() == 1);
    CHECK(env::num_restarts() == 0);
    CHECK_FALSE(env::supervisor_url());
    CHECK_FALSE(env::supervisor_token());
    CHECK_FALSE(env::sched_version());
    CHECK_FALSE(env::tensorboard_logdir());
    CHECK_FALSE(env::replica_id());
    CHECK(env::generation() == 0);
    CHECK(env::checkpoint_every() == 5min);
    CHECK(env::checkpoint_keep() == 2);
    CHECK_FALSE(env::backend());
    CHECK_FALSE(env::from_ray());
    CHECK_FALSE(env::status_fd());
    CHECK_FALSE(env::results_file());
    CHECK(env::collective_timeout() == 30min);
    CHECK(env::connect_timeout() == 5min);
  };
  const char* const names[] = {"CHECKPOINT_PATH",
                               "SHARE_PATH",
                               "JOB_ID",
                               "MASTER_ADDR",
                               "MASTER_PORT",
                               "REPLICA_RANK",
                               "NUM_NODES",
                               "NUM_REPLICAS",
                               "NUM_RESTARTS",
                               "SUPERVISOR_URL",
                               "SUPERVISOR_TOKEN",
                               "SCHED_VERSION",
                               "TENSORBOARD_LOGDIR",
                               "REPLICA_ID",
                               "GENERATION",
                               "CHECKPOINT_EVERY",
                               "CHECKPOINT_KEEP",
                               "BACKEND",
                               "STATUS_FD",
                               "RESULTS_FILE",
                               "COLLECTIVE_TIMEOUT",
                               "CONNECT_TIMEOUT",
                               "RAY"};
  for (const char* name : names) ::unsetenv((std::string("ADAPTDL_") + name).c_str());
  check();
  for (const char* name : names) ::setenv((std::string("ADAPTDL_") + name).c_str(), "", 1);
  check();
  for (const char* name : names) ::unsetenv((std::string("ADAPTDL_") + name).c_str());
}

TEST_CASE("values are read from the environment at each call") {
  const Variable replicas("ADAPTDL_NUM_REPLICAS", "4");
  CHECK(env::num_replicas() == 4);
  CHECK(env::num_nodes() == 4);
  {
    const Variable nodes("ADAPTDL_NUM_NODES", "2");
    CHECK(env::num_nodes() == 2);
  }
  CHECK(env::num_nodes() == 4);
  const Variable rank("ADAPTDL_REPLICA_RANK", "3");
  CHECK(env::replica_rank() == 3);
  const Variable port("ADAPTDL_MASTER_PORT", "65535");
  CHECK(env::master_port() == 65535);
  const Variable every("ADAPTDL_CHECKPOINT_EVERY", "0");
  CHECK(env::checkpoint_every() == 0ms);
  const Variable path("ADAPTDL_CHECKPOINT_PATH", "/some where/é");
  CHECK(env::checkpoint_path() == "/some where/é");
  const Variable backend("ADAPTDL_BACKEND", "gloo");
  CHECK(env::backend() == "gloo");
  const Variable ray("ADAPTDL_RAY", "1");
  CHECK(env::from_ray());
}

TEST_CASE("the error for an invalid number names the variable, the value and the accepted range") {
  const Variable replicas("ADAPTDL_NUM_REPLICAS", "two");
  CHECK_GOLDEN(error_of<UsageError>(env::num_replicas));
  for (const char* value : {"1x", " 1", "1 ", "+1", "0x10", "1.0", "1e3", "-", "99999999999999999999", "-1", "65536"}) {
    CAPTURE(value);
    const Variable port("ADAPTDL_MASTER_PORT", value);
    CHECK(error_of<UsageError>(env::master_port) ==
          std::string("ADAPTDL_MASTER_PORT must be an integer from 0 to 65535, not '") + value + "'");
  }
}

TEST_CASE("numbers out of range are rejected") {
  const auto check = [](const char* name, const char* value, const std::function<void()>& read) {
    const Variable variable(name, value);
    CAPTURE(name);
    CHECK(error_of<UsageError>(read).find(std::string(name) + " must be an integer") == 0);
  };
  check("ADAPTDL_NUM_REPLICAS", "0", env::num_replicas);
  check("ADAPTDL_NUM_RESTARTS", "-1", env::num_restarts);
  check("ADAPTDL_GENERATION", "-1", env::generation);
  check("ADAPTDL_CHECKPOINT_KEEP", "0", env::checkpoint_keep);
  check("ADAPTDL_RAY", "2", env::from_ray);
  check("ADAPTDL_STATUS_FD", "-1", env::status_fd);
  const Variable replicas("ADAPTDL_NUM_REPLICAS", "3");
  check("ADAPTDL_REPLICA_RANK", "3", env::replica_rank);
  check("ADAPTDL_REPLICA_RANK", "-1", env::replica_rank);
  check("ADAPTDL_NUM_NODES", "0", env::num_nodes);
  check("ADAPTDL_NUM_NODES", "4", env::num_nodes);
}

TEST_CASE("a rank must be less than the number of replicas") {
  const Variable rank("ADAPTDL_REPLICA_RANK", "1");
  CHECK_GOLDEN(error_of<UsageError>(env::replica_rank));
}

TEST_CASE("a backend other than gloo and nccl is rejected") {
  const Variable backend("ADAPTDL_BACKEND", "mpi");
  CHECK_GOLDEN(error_of<UsageError>(env::backend));
}

TEST_CASE("a duration is a number with an optional unit") {
  const auto parse = [](const char* text) { return env::parse_duration(text, "--every"); };
  CHECK(parse("500ms") == 500ms);
  CHECK(parse("90s") == 90s);
  CHECK(parse("90") == 90s);
  CHECK(parse("1.5h") == 90min);
  CHECK(parse(".5m") == 30s);
  CHECK(parse("5m") == 5min);
  CHECK(parse("2d") == 48h);
  CHECK(parse("0") == 0ms);
  CHECK(parse("0.0001ms") == 1ms);  // rounded up, not down to zero
}

TEST_CASE("the error for an invalid duration names the option, the value and the expected format") {
  for (const char* text : {"", "s", "5 m", "5min", "-5s", "+5s", "1e3s", "inf", "nan", "5s5", "0x5s", "1,5h", "5M"}) {
    CAPTURE(text);
    CHECK(
        error_of<UsageError>([&] { env::parse_duration(text, "--every"); }) ==
        std::string("--every must be a duration such as 90s, 1.5h or 500ms (units ms, s, m, h, d; a bare number is ") +
            "seconds), not '" + text + "'");
  }
  CHECK_GOLDEN(error_of<UsageError>([] { env::parse_duration("999999999d", "--every"); }));
  const Variable timeout("ADAPTDL_COLLECTIVE_TIMEOUT", "0s");
  CHECK_GOLDEN(error_of<UsageError>(env::collective_timeout));
  const Variable every("ADAPTDL_CHECKPOINT_EVERY", "soon");
  CHECK(error_of<UsageError>(env::checkpoint_every).find("ADAPTDL_CHECKPOINT_EVERY must be a duration") == 0);
}

}  // namespace env_test
